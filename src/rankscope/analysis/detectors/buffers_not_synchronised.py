"""Finds running statistics that each replica keeps for itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from rankscope.analysis import tensors
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.replicas import (
    communicates,
    differ,
    gap,
    replicas,
    rows_of,
    splits_layers,
    wrappers,
)
from rankscope.analysis.synchronisation import unsynchronised
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import Key, Series
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.collective import Collective
from rankscope.records.gradient_calls import Wrapping
from rankscope.records.inventory import Buffer, Model
from rankscope.records.numerics import BufferStat
from rankscope.records.training import Backward

SHOWN: Final = 3
FAR: Final = 0.1
"""Relative distance of the size of running statistics over ranks that matters: what ranks with like data gather from
batches of 16 lies within a few percent."""
STATISTICS: Final = ("running", "mean", "var", "std", "ema", "moving", "center", "codebook", "cluster", "scale")
"""Parts of the names of buffers that sum up what a model has seen."""


class BuffersNotSynchronised(Detector):
    """Running statistics differ between replicas: each rank evaluates another model.

    ## What it is
    Gradients are averaged, buffers are not: with `broadcast_buffers=False`, or where the program reduces gradients by
    hand, the running mean and variance of BatchNorm come from one rank's batches alone. Training hides it (it uses the
    batch's own statistics), evaluation and the saved model do not.

    ## What shows it
    Samples of floating buffers that change differ between ranks that hold the same parameters, and nothing copies or
    reduces them: no broadcast in the forward, no reduction of their size later.

    ## What else looks like it
    With `broadcast_buffers=True` buffers differ at the end of each step and are made equal at the next forward: that is
    no fault. SyncBatchNorm keeps them equal. Buffers that never change may differ on purpose.

    ## What to do
    `SyncBatchNorm.convert_sync_batchnorm`, `broadcast_buffers=True`, or average the buffers before each evaluation.
    """

    name = "buffers-not-synchronised"
    needs = (BufferStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is nothing to compare")
        if not communicates(facts):
            raise CannotExamine("the ranks do not communicate: they are not meant to be equal, for all that is known")
        together = {key[0] for key, one in replicas(facts).items() if one.meant}
        together -= {one.model for one in unsynchronised(facts)}
        if splits_layers(facts):
            together &= set(wrappers(facts))
        for model in sorted(together):
            yield from self._of(facts, model)

    def _of(self, facts: Facts, model: str) -> Iterator[Finding]:
        positions = next(one.positions for key, one in replicas(facts).items() if key[0] == model and one.meant)
        kinds = _buffers(facts, model)
        found = [
            (key, series) for key, series in tensors.buffers(facts).items()
            if key[0] == model and key in kinds and not set(positions) - set(series.positions)
            and _lives(series, positions) and differ(series, positions)[-1]
        ]  # fmt: skip
        if not found or _copied(facts, model, positions, kinds.values()):
            return
        found.sort(key=lambda pair: -float(gap(pair[1], positions)[-1]))
        known = [pair for pair in found if _summarises(kinds[pair[0]])]
        distances = [float(np.median(gap(series, positions)[len(series.steps) // 2 :])) for _, series in known]
        far = max(distances, default=0.0)
        first = min(int(series.steps[differ(series, positions)][0]) for _, series in known or found)
        paths = [key[1] for key, _ in known or found]
        shown = ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
        key, worst = (known or found)[0]
        sizes = rows_of(worst, positions, "rms")[:, -1]
        yield Finding(
            cause=self.name,
            severity="warning" if far >= FAR else "info",
            confidence=0.9 if far >= FAR else 0.5,
            title=f"buffers of {model} differ between ranks and nothing makes them equal: {shown}; each rank evaluates "
            "another model",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=", ".join(paths[:SHOWN]),
            location=None,
            first_step=first,
            last_step=int(worst.steps[-1]),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("buffers that differ", float(len(paths)), "count"),
                Evidence("relative distance of their sizes in the second half of the run", far, "share"),
                *(Evidence(f"size of {key[1]} at the end", float(size), "rms", facts.numbers((p,)))
                  for p, size in zip(positions, sizes.tolist(), strict=True)),
            ),
            next=(
                "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or broadcast_buffers=True",
                "average running statistics over the ranks before each evaluation and each checkpoint",
            ),
        )  # fmt: skip


def _buffers(facts: Facts, model: str) -> dict[Key, Buffer]:
    stock = tensors.inventory(facts, 0)
    models: tuple[Model, ...] = stock.models if stock is not None else ()
    return {(m.name, b.path): b for m in models if m.name == model for b in m.buffers}


def _lives(series: Series, positions: tuple[int, ...]) -> bool:
    """Whether it changes on each of the ranks."""
    prints = rows_of(series, positions, "fingerprint")
    return prints.shape[1] > 1 and bool((prints[:, 1:] != prints[:, :-1]).any(axis=1).all())


def _summarises(buffer: Buffer) -> bool:
    name = buffer.path.rpartition(".")[2].lower()
    return "Norm" in buffer.owner or any(part in name for part in STATISTICS)


def _copied(facts: Facts, model: str, positions: tuple[int, ...], found: Iterable[Buffer]) -> bool:
    """Whether something makes buffers equal: the wrapper at each forward, or the program itself every now and then."""
    wrapped = wrappers(facts).get(model)
    if wrapped is not None and any(column(rows, Wrapping, "broadcast_buffers")[-1] for rows in wrapped.rows):
        return True
    each = [int(np.prod(b.shape)) for b in found if b.dtype.startswith(("float", "bfloat"))]
    sizes = {n for n in each if n > 1} | {sum(each)}
    position = positions[0]
    rows = facts.rows(Collective, position, window=False)
    rows = rows[(column(rows, Collective, "in_backward") == 0) & (column(rows, Collective, "point_to_point") == 0)]
    backwards = facts.rows(Backward, position, window=False)
    if len(backwards):  # what comes before the first backward belongs to the start
        rows = rows[rows["time_ns"] > backwards["time_ns"][0]]
    names = [facts.tables.name(facts.ranks[position].pid, int(n)) for n in np.unique(rows["name"])]
    elements = column(rows, Collective, "elements").tolist()
    if wrapped is None and any(name.startswith("broadcast") for name in names):
        return True
    return any(n in sizes for n in elements)
