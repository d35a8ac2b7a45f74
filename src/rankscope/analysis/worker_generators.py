"""Random generators of the loader workers of one pass: which draw the same numbers, and which are drawn from at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.reading import passes
from rankscope.analysis.stacks import Place, parse_place
from rankscope.analysis.tables import Rows, column
from rankscope.records.batches import MOST_PASSES, RandomState
from rankscope.records.loading import LoaderStart


@dataclass(frozen=True, slots=True)
class Generator:
    """One random generator in one worker process."""

    name: str
    worker: int
    states: tuple[int, ...]
    """Before its first fetch, and after each of the first ones that were seen."""
    streams: tuple[int, ...]
    held: bool
    iterable: bool
    place: Place | None
    step: int
    """Steps the rank had finished when the worker came."""
    number: int
    """Generations of workers that trained on this dataset before."""
    dataset: str

    @property
    def used(self) -> bool:
        """Whether each of the fetches draws from it: once at the start may be a shuffle that all workers do alike."""
        return all(a != b for a, b in zip(self.states, self.states[1:], strict=False)) and len(self.states) > 1


def generators(facts: Facts, position: int) -> tuple[Generator, ...]:
    """Those in all workers that a rank has trained with."""
    return facts.once(_generators, position)


def draw_the_same(first: Generator, second: Generator) -> bool:
    """Whether two workers draw the same numbers: equal when they begin, drawn from, and still in one stream after that.

    A generator that is seeded anew for each sample is in another stream then. One that draws more for some samples than
    for others is at another place of the same stream.
    """
    if first.states[0] != second.states[0] or not (first.used and second.used):
        return False
    return first.states[1] == second.states[1] or first.streams[1] == second.streams[1] != 0


def _generators(facts: Facts, position: int) -> tuple[Generator, ...]:
    starts = facts.rows(LoaderStart, position, window=False)
    starts = starts[column(starts, LoaderStart, "workers") > 0]
    rows = facts.tables.of(RandomState)
    trains = {(one.loader, one.number): one for one in passes(facts, position) if one.trains}
    numbers = _numbers(facts, position)
    generations: dict[str, dict[int, int]] = defaultdict(dict)
    found: list[Generator] = []
    for pid in sorted(facts.ranks[position].workers, key=lambda p: facts.tables.processes[p].started_ns):
        mine = rows[rows["process"] == pid]
        before = np.searchsorted(starts["time_ns"], facts.tables.processes[pid].started_ns, side="right") - 1
        if not len(mine) or before < 0:
            continue
        loader = int(column(starts, LoaderStart, "loader")[before])
        at = int(starts["time_ns"][before])
        passed = trains.get((loader, numbers.get(at, 0)))
        if passed is None:
            continue
        known = generations[passed.dataset]
        number = known.setdefault(at, len(known))
        found += _of_worker(facts, pid, mine, (number, int(starts["step"][before]), passed.dataset))
    return tuple(found)


def _numbers(facts: Facts, position: int) -> dict[int, int]:
    """When an iterator was made -> passes over its loader before."""
    rows = facts.rows(LoaderStart, position, window=False)
    counted: dict[int, int] = defaultdict(int)
    found = {}
    for time, loader in zip(rows["time_ns"].tolist(), column(rows, LoaderStart, "loader").tolist(), strict=True):
        found[time] = min(counted[loader], MOST_PASSES)
        counted[loader] += 1
    return found


def _of_worker(facts: Facts, pid: int, rows: Rows, of: tuple[int, int, str]) -> Iterator[Generator]:
    number, step, dataset = of
    for name in np.unique(rows["name"]).tolist():
        mine = rows[rows["name"] == name]
        mine = mine[np.argsort(column(mine, RandomState, "fetches"), kind="stable")]
        if len(mine) < 2 or column(mine[:1], RandomState, "fetches")[0]:
            continue
        text = facts.tables.name(pid, int(column(mine, RandomState, "place")[0]))
        yield Generator(
            name=facts.tables.name(pid, name),
            worker=int(column(mine, RandomState, "worker")[0]),
            states=tuple(column(mine, RandomState, "state").tolist()),
            streams=tuple(column(mine, RandomState, "stream").tolist()),
            held=bool(column(mine, RandomState, "held")[0]),
            iterable=bool(column(mine, RandomState, "iterable")[0]),
            place=parse_place(text) if text.count(":") > 1 else None,
            step=step,
            number=number,
            dataset=dataset,
        )
