"""What each rank read, pass by pass over its loaders: the batches in their order, and whether they were trained on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import Rows, column
from rankscope.records.batches import MOST_LOADERS, MOST_PASSES, Batch, BatchLabels, LoaderPass
from rankscope.records.loading import LoaderStart
from rankscope.records.record import Record
from rankscope.records.training import Backward, Forward

Ints = NDArray[np.int64]
MOSTLY = 0.9
"""Of the batches of a pass that come with gradients on: it trains, where they are more; it does not, where they are as
few as the rest."""
OFTEN = 0.4
"""Of the batches of a training pass that a backward follows: a program may make one loss of two batches."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """What decides about the order of a pass."""

    kind: str
    dataset_samples: int
    """-1: not known."""
    epoch: int | None
    replicas: int
    shuffle: bool
    iterable: bool
    dataset_print: int
    """Fingerprint of the dataset's attributes; 0: not taken in this pass."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a rank over a loader, from its first batch to its last one that was seen."""

    loader: int
    number: int
    dataset: str
    batches: Rows
    """Records of `Batch`, by ordinal."""
    sampler: Sampler | None
    place: Place | None
    """Where its iterator was made."""
    trains: bool
    evaluates: bool
    """Without gradients from the first batch to the last, or in evaluation mode and without a backward between."""

    def of(self, field: str) -> Ints:
        """[k] one field of its batches."""
        return column(self.batches, Batch, field).astype(np.int64)

    @property
    def begin_ns(self) -> int:
        return int(self.batches["time_ns"][0])

    @property
    def end_ns(self) -> int:
        return int(self.batches["time_ns"][-1])

    @property
    def steps(self) -> Ints:
        """[k] steps that were finished when each batch came."""
        found: Ints = self.batches["step"].astype(np.int64)
        return found

    @property
    def in_dataset_order(self) -> bool:
        """Whether sample indices rise in every batch, and so from batch to batch as far as can be told."""
        known = self.of("order") > 0
        return bool(known.all()) and bool(self.of("ascending").all()) and bool((self.of("samples") > 1).any())


def passes(facts: Facts, position: int) -> tuple[Pass, ...]:
    """All passes of a rank over its loaders, the first one first."""
    return facts.once(_passes, position)


def training_passes(facts: Facts, position: int) -> tuple[Pass, ...]:
    """Those whose batches the rank trained on."""
    return tuple(one for one in passes(facts, position) if one.trains)


def by_source(found: tuple[Pass, ...]) -> dict[tuple[str, str], list[Pass]]:
    """Passes over the same data, though each may have a loader of its own: of one dataset's class, from one line."""
    groups: dict[tuple[str, str], list[Pass]] = defaultdict(list)
    for one in found:
        groups[one.dataset, f"{one.place.file}:{one.place.line}" if one.place else str(one.loader)].append(one)
    return dict(groups)


def labels(facts: Facts, position: int) -> dict[tuple[int, int], Rows]:
    """(loader, number of the pass) -> its records of `BatchLabels`, by ordinal; of a rank."""
    return facts.once(_labels, position)


def counts(rows: Rows) -> Ints:
    """[k, 16] labels of each class (modulo 16) in samples of batches."""
    words = np.stack([rows["a"], rows["b"]], axis=1).astype(np.int64)
    shifts = np.arange(0, 64, 8)
    found: Ints = ((words[:, :, None] >> shifts) & 255).reshape(len(rows), 16)
    return found


def _labels(facts: Facts, position: int) -> dict[tuple[int, int], Rows]:
    rows = facts.rows(BatchLabels, position, window=False)
    return dict(_split(rows, BatchLabels))


def _split(rows: Rows, kind: type[Record]) -> list[tuple[tuple[int, int], Rows]]:
    """Rows of each pass that can be told from others, by ordinal; the passes by the time of their first batch."""
    loader, number = column(rows, kind, "loader"), column(rows, kind, "number")
    known = (loader < MOST_LOADERS) & (number < MOST_PASSES)
    rows, keys = rows[known], (loader << 10 | number)[known]
    order = np.lexsort((column(rows, kind, "ordinal"), keys))
    rows, keys = rows[order], keys[order]
    found, starts = np.unique(keys, return_index=True)
    parts = np.split(rows, starts[1:])
    passes = [((key >> 10, key & 1023), part) for key, part in zip(found.tolist(), parts, strict=False)]
    return sorted(passes, key=lambda pair: int(pair[1]["time_ns"][0]))


def _passes(facts: Facts, position: int) -> tuple[Pass, ...]:
    rows = facts.rows(Batch, position, window=False)
    backwards = np.sort(facts.rows(Backward, position, window=False)["time_ns"].astype(np.int64))
    forwards = facts.rows(Forward, position, window=False)
    samplers = _samplers(facts, position)
    places = _places(facts, position)
    pid = facts.ranks[position].pid
    found = []
    for key, mine in _split(rows, Batch):
        times = mine["time_ns"].astype(np.int64)
        grad = column(mine, Batch, "grad")
        # Backward calls between one batch and the next; behind the last one there may be anything.
        between = np.diff(np.searchsorted(backwards, times)) > 0
        if not len(between):
            following = np.searchsorted(backwards, times[0])
            between = np.array([following < len(backwards)])
        trains = bool(grad.mean() >= MOSTLY) and bool(between.mean() >= OFTEN)
        evaluates = bool(grad.mean() <= 1 - MOSTLY) or (not between.any() and _only_evaluated(forwards, times))
        found.append(
            Pass(
                *key,
                facts.tables.name(pid, int(mine["name"][0])),
                mine,
                samplers.get(key),
                places.get(key),
                trains,
                evaluates and not trains,
            )
        )
    return tuple(found)


def _only_evaluated(forwards: Rows, times: Ints) -> bool:
    """Whether the models that were called between the first batch and the last were in evaluation mode."""
    inside = forwards[(forwards["time_ns"] >= times[0]) & (forwards["time_ns"] <= times[-1])]
    return bool(len(inside)) and not column(inside, Forward, "training").any()


def _samplers(facts: Facts, position: int) -> dict[tuple[int, int], Sampler]:
    rows = facts.rows(LoaderPass, position, window=False)
    fields = (
        "loader", "number", "dataset_samples", "epoch_known", "epoch", "replicas", "shuffle", "iterable",
        "dataset_print",
    )  # fmt: skip
    table = np.stack([column(rows, LoaderPass, name).astype(np.int64) for name in fields], axis=1)
    found = {}
    for name, row in zip(rows["name"].tolist(), table.tolist(), strict=True):
        loader, number, size, known, epoch, replicas, shuffle, iterable, dataset = row
        kind = facts.tables.name(facts.ranks[position].pid, name)
        found[loader, number] = Sampler(
            kind, size, epoch if known else None, replicas, bool(shuffle), bool(iterable), dataset
        )  # fmt: skip
    return found


def _places(facts: Facts, position: int) -> dict[tuple[int, int], Place | None]:
    """Where the iterator of each pass was made: the k-th one of a loader began its k-th pass."""
    rows = facts.rows(LoaderStart, position, window=False)
    counted: dict[int, int] = defaultdict(int)
    found = {}
    loaders, sites = column(rows, LoaderStart, "loader"), column(rows, LoaderStart, "site")
    for loader, site in zip(loaders.tolist(), sites.tolist(), strict=True):
        found[min(loader, MOST_LOADERS), min(counted[loader], MOST_PASSES)] = facts.place(position, site)
        counted[loader] += 1
    return found
