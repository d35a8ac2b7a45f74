"""Finds parameters that must be equal on all ranks and are not, though their gradients are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from rankscope.analysis import tensors, wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_path import backward_place
from rankscope.analysis.replicas import communicates, rows_of
from rankscope.analysis.synchronisation import (
    Parted,
    common_ratio,
    odd_gradients,
    one_after_another,
    parted_weights,
    unsynchronised,
)
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.gradient_calls import ScalerStep
from rankscope.records.numerics import WeightStat
from rankscope.records.training import OptimizerStep

SHOWN = 3
ODD = 3.0
"""Times that the one of two ranks whose parameters jump changes more than the other."""


class ReplicasDiverged(Detector):
    """Parameters that must be equal on all ranks differ.

    ## What it is
    Each rank goes on from a model of its own: the replicas never started equal, one rank's optimizer has another
    learning rate or left out a step, or something changed the parameters of one rank.

    ## What shows it
    Samples of parameters differ between ranks that must agree, up to the last sampled step, while the gradients that
    the optimizer gets are equal.

    ## What else looks like it
    Where the gradients differ, too, `gradients-not-synchronised` names the reason. Sharded parameters, ranks of a
    sweep, and parameters that are averaged now and then may differ.

    ## What to do
    Broadcast parameters and optimizer state from rank 0 before the first step and after loading; let every rank take
    the same decisions (learning rate, skipped steps) from the same numbers.
    """

    name = "replicas-diverged"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is nothing to compare")
        if not communicates(facts):
            raise CannotExamine("the ranks do not communicate: they are not meant to be equal, for all that is known")
        parted = parted_weights(facts)
        # Gradients that differ, or are scaled differently, part the parameters; then those are named.
        others = [*(one.first for one in unsynchronised(facts)), *common_ratio(facts)]
        others += [one.step for one in odd_gradients(facts)]
        if not parted or one_after_another(facts) or min(others, default=parted[0].first + 1) <= parted[0].first:
            return
        start = parted[0]
        together = [one for one in parted if one.first == start.first]
        why, positions = _why(facts, start)
        paths = [one.key[1] for one in together]
        shown = ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
        since = "from the start" if start.after < 0 else f"since step {start.first}"
        yield Finding(
            cause=self.name,
            severity="critical",
            confidence=0.85,
            title=f"replicas differ {since}: {shown}; {why}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="optimizer",
            component=start.key[0] if len(parted) > SHOWN else ", ".join(paths[:SHOWN]),
            location=wording.location(backward_place(facts, positions[0])),
            first_step=start.first,
            last_step=facts.all_steps - 1,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("parameters that differ at the end", float(len(parted)), "count"),
                Evidence("largest relative distance of their sizes", max(one.distance for one in parted), "share"),
                Evidence("last sampled step on which they agreed", float(start.after) if start.after >= 0 else None,
                         "step (none where there is no value)"),
            ),
            next=(
                "broadcast parameters and optimizer state from one rank before the first step",
                "look for what depends on the rank: learning rate, skipped steps, loaded files, writes to parameters",
            ),
        )  # fmt: skip


def _why(facts: Facts, start: Parted) -> tuple[str, tuple[int, ...]]:
    """What is known of the reason, and the ranks that are the odd ones."""
    rates = [_rates(facts, p) for p in start.positions]
    common = sorted(set.intersection(*(set(r) for r in rates)))
    for step in common:
        values = [r[step] for r in rates]
        if len(set(values)) > 1 and step <= start.first:
            return f"learning rates differ ({_shown(values)})", _minority(values, start.positions)
    skipped = [_skipped(facts, p) for p in start.positions]
    if len(set(skipped)) > 1:
        return f"ranks left out different steps ({_shown(skipped)})", _minority(skipped, start.positions)
    series = tensors.weights(facts)[start.key]
    prints = rows_of(series, start.positions, "fingerprint")[:, series.steps == start.first][:, 0]
    positions = _minority(prints.tolist(), start.positions)
    if start.after < 0:
        return "they were never made equal", positions
    if len(positions) == len(start.positions) == 2:
        sizes = rows_of(series, start.positions, "rms")
        at = int(np.flatnonzero(series.steps == start.first)[0])
        after = min(at + 1, sizes.shape[1] - 1)
        moves = np.abs(sizes[:, after] - sizes[:, max(at - 1, 0)])
        if moves.max() > ODD * moves.min():
            positions = (start.positions[int(np.argmax(moves))],)
    return "their gradients agree, so something else changed them", positions


def _rates(facts: Facts, position: int) -> dict[int, float]:
    rows = facts.rows(OptimizerStep, position, window=False)
    rows = rows[np.isfinite(column(rows, OptimizerStep, "lr"))] if len(rows) else rows
    first = rows[column(rows, OptimizerStep, "optimizer") == 1] if len(rows) else rows
    return dict(zip(first["step"].tolist(), column(first, OptimizerStep, "lr").tolist(), strict=True))


def _skipped(facts: Facts, position: int) -> int:
    rows = facts.rows(ScalerStep, position, window=False)
    return int(column(rows, ScalerStep, "skipped").sum()) if len(rows) else 0


def _minority(values: list[float] | list[int], positions: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that have another value than most; all where no value has a majority."""
    value, count = Counter(values).most_common(1)[0]
    if count <= len(values) / 2:
        return positions
    return tuple(p for p, v in zip(positions, values, strict=True) if v != value)


def _shown(values: list[float] | list[int]) -> str:
    return ", ".join(f"{v:g}" for v in dict.fromkeys(values))
