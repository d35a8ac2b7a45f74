"""Everything the detectors ask: steps, segments, charges, waits, samples, counters and what-if of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import attribution, matching, replay, timeline
from rankscope.analysis.activities import Activities, find_activities
from rankscope.analysis.ranks import Rank, find_ranks
from rankscope.analysis.stacks import Place, Samples, parse_place, read_samples
from rankscope.analysis.tables import Rows, Tables, column
from rankscope.analysis.timeline import Timeline
from rankscope.records.host import Counter
from rankscope.records.record import Record
from rankscope.records.training import Forward, Step

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
T = TypeVar("T")

WARM_UP_STEPS = 20
"""Most of the first steps that are left out: allocation, worker start-up, autotuning (never more than a fifth)."""
FEWEST_STEPS = 8
"""Below this many steps no share of a step is claimed."""
PLACE_COLONS = 2
"""`file:line:function`: a name with fewer colons is no place."""


@dataclass(frozen=True, slots=True)
class Series:
    """A counter's readings, oldest first: cumulated values or, of a gauge, the values themselves."""

    time_ns: Ints
    value: Ints

    def __len__(self) -> int:
        return len(self.time_ns)

    def growth(self, begin: int, end: int) -> float | None:
        """How much it grew per ns between two moments, from the readings inside; None with fewer than two."""
        inside = (self.time_ns >= begin) & (self.time_ns <= end)
        if inside.sum() < 2:
            return None
        t, v = self.time_ns[inside], self.value[inside]
        return float(v[-1] - v[0]) / float(t[-1] - t[0])


class Facts:
    """Facts of one run, computed when first asked for and kept. Ranks are addressed by their position in `ranks`."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.ranks: tuple[Rank, ...] = find_ranks(tables)
        self._kept: dict[tuple[Any, tuple[int, ...]], Any] = {}

    def once(self, make: Callable[..., T], *arguments: int) -> T:
        """`make(self, *arguments)`, made when first asked for and kept: assessments that several detectors share."""
        key = (make, arguments)
        if key not in self._kept:
            self._kept[key] = make(self, *arguments)
        found: T = self._kept[key]
        return found

    # -- steps -------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Ranks that were observed."""
        return len(self.ranks)

    @cached_property
    def world_size(self) -> int:
        """Ranks of the job, observed or not."""
        return max((r.process.world_size for r in self.ranks), default=0)

    @cached_property
    def inference(self) -> bool:
        """Whether the run has no training step and is measured by its forward calls."""
        return not any(len(self._step_rows(r)) for r in self.ranks)

    def _step_rows(self, rank: Rank) -> Rows:
        rows = self.tables.of(Step)
        return np.asarray(rows[rows["process"] == rank.pid])

    @cached_property
    def _steps_and_ends(self) -> tuple[Ints, Ints]:
        ends: list[dict[int, int]] = []
        for rank in self.ranks:
            rows = self._step_rows(rank)
            if self.inference:
                forwards = self.tables.of(Forward)
                forwards = forwards[(forwards["process"] == rank.pid) & (column(forwards, Forward, "elements") > 0)]
                finished = (forwards["time_ns"] + forwards["duration_ns"]).astype(np.int64)
                ends.append(dict(enumerate(finished.tolist())))
            else:
                finished = (rows["time_ns"] + rows["duration_ns"]).astype(np.int64)
                ends.append(dict(zip(rows["step"].tolist(), finished.tolist(), strict=True)))
        if not ends:
            return np.empty(0, np.int64), np.empty((1, 0), np.int64)
        common = sorted(set.intersection(*(set(e) for e in ends)))
        # The newest unbroken series: of a long run the middle was left in the store.
        for i in range(len(common) - 1, 0, -1):
            if common[i] != common[i - 1] + 1:
                common = common[i:]
                break
        return np.array(common, np.int64), np.array([[e[s] for s in common] for e in ends], np.int64)

    @cached_property
    def all_steps(self) -> int:
        """Steps that every rank finished."""
        steps = self._steps_and_ends[0]
        return int(steps[-1]) + 1 if len(steps) else 0

    def step_count(self, position: int) -> int:
        """Steps that a rank finished."""
        return len(self._step_rows(self.ranks[position]))

    @cached_property
    def warm_up(self) -> int:
        """Steps at the start that are not analysed."""
        n = len(self._steps_and_ends[0])
        return max(1, min(WARM_UP_STEPS, n // 5)) if n else 0

    @cached_property
    def attribution(self) -> attribution.Attribution:
        """The walk over every step of the window."""
        steps, ends = self._steps_and_ends
        first = self.warm_up - 1
        return attribution.attribute(self.timelines, self.matches, steps[max(first, 0) :], ends[:, max(first, 0) :])

    @property
    def steps(self) -> Ints:
        """Numbers of the steps in the window."""
        return self.attribution.steps

    @property
    def enough(self) -> bool:
        """Whether there are steps enough after the warm-up to claim a share of a step."""
        return len(self._steps_and_ends[0]) - self.warm_up >= FEWEST_STEPS

    @property
    def begin(self) -> int:
        """The window: from the end of the last warm-up step ..."""
        return int(self.attribution.start[0]) if len(self.steps) else 0

    @property
    def end(self) -> int:
        """... to the end of the last step."""
        return int(self.attribution.end[-1]) if len(self.steps) else 0

    @cached_property
    def finished_ns(self) -> int:
        """When the last rank ended the last step, also where the window is empty; 0 without a step."""
        ends = self._steps_and_ends[1]
        return int(ends[:, -1].max()) if ends.size else 0

    @property
    def span_ns(self) -> int:
        """Length of the window."""
        return self.end - self.begin

    @property
    def mean_step_ns(self) -> float:
        """Mean duration of a step of the window, 0 where there is none."""
        return self.span_ns / len(self.steps) if len(self.steps) else 0.0

    @cached_property
    def step_ns(self) -> Ints:
        """Duration of each step of the window for the whole run (last rank to last rank)."""
        return self.attribution.step_ns()

    def step_of(self, time_ns: int) -> int | None:
        """Number of the step of the window during which a moment lies."""
        index = int(np.searchsorted(self.attribution.end, time_ns))
        return int(self.steps[index]) if index < len(self.steps) and time_ns >= self.begin else None

    # -- timelines ---------------------------------------------------------------------------------------------

    @cached_property
    def _raw_timelines(self) -> list[Timeline]:
        return [timeline.build(self.tables, rank) for rank in self.ranks]

    @cached_property
    def activities(self) -> Activities:
        """What user code between the phases does; relabels the segments that belong to a phase after all."""
        return find_activities(
            self.tables, self.ranks, self._raw_timelines, [self.samples(i) for i in range(self.size)]
        )

    @cached_property
    def timelines(self) -> list[Timeline]:
        """One timeline a rank, user code already assigned to the phase that it serves."""
        self.activities.relabel(self._raw_timelines)
        return self._raw_timelines

    @cached_property
    def matches(self) -> matching.Matches:
        """The same collective on all its ranks."""
        return matching.match(self.tables, self._raw_timelines, [r.pid for r in self.ranks])

    def phases(self, position: int) -> NDArray[np.str_]:
        """The phase of each segment of a rank."""
        own = self.timelines[position]
        return np.asarray(np.array(own.phases)[own.segments["phase"]])

    def in_window(self, position: int) -> Mask:
        """Segments of a rank that lie in the window."""
        segments = self.timelines[position].segments
        return np.asarray((segments["start"] >= self.begin) & (segments["end"] <= self.end), bool)

    def sampled_in_window(self, position: int) -> int:
        """Stack samples of a rank's thread in the steps that are analysed."""
        times = self.samples(position).time_ns
        return int(((times >= self.begin) & (times <= self.end)).sum())

    def work(self, position: int, phase: str | None = None) -> Mask:
        """Segments of the window in which a rank works (does not wait for peers), of one phase or of all."""
        mask = self.in_window(position) & (self.timelines[position].segments["collective"] < 0)
        return mask & (self.phases(position) == phase) if phase is not None else mask

    def work_ns(self, position: int, phase: str) -> float:
        """Time a rank itself spent in a phase, in ns per step."""
        durations = self.timelines[position].durations()
        return float(durations[self.work(position, phase)].sum()) / max(1, len(self.steps))

    def per_step(self, position: int, mask: Mask) -> Floats:
        """The masked time of a rank in each step of the window, in ns, by the rank's own step ends."""
        return self.per_step_of(position, mask, self.timelines[position].durations().astype(np.float64))

    def per_step_of(self, position: int, mask: Mask, values: Floats) -> Floats:
        """Values of a rank's masked segments, added up by step."""
        ends = self._steps_and_ends[1]
        edges = ends[position, self.warm_up - 1 :]
        starts = self.timelines[position].segments["start"][mask]
        index = np.searchsorted(edges, starts, side="right") - 1
        good = (index >= 0) & (index < len(self.steps))
        return np.bincount(index[good], values[mask][good], minlength=len(self.steps))[: len(self.steps)].astype(
            np.float64
        )

    # -- charges -----------------------------------------------------------------------------------------------

    @cached_property
    def charges(self) -> dict[tuple[int, str], float]:
        """(rank position, phase) -> ns of the window charged to it; transfers are `communication`."""
        pieces = self.attribution.pieces
        found: dict[tuple[int, str], float] = {}
        for position in range(self.size):
            mine = pieces[pieces["rank"] == position]
            if not len(mine):
                continue
            names = self.phases(position)
            labels = np.where(
                mine["segment"] >= 0, names[mine["segment"]] if len(names) else timeline.OTHER, timeline.OTHER
            )
            labels = np.where(mine["transfer"] > 0, timeline.COMMUNICATION, labels)
            durations = (mine["end"] - mine["start"]).astype(np.float64)
            for label in np.unique(labels).tolist():
                found[position, label] = float(durations[labels == label].sum())
        return found

    def charged(self, phase: str, positions: Iterable[int] | None = None) -> float:
        """Share of the window charged to a phase on some ranks (or on all)."""
        wanted = set(range(self.size) if positions is None else positions)
        total = sum(ns for (position, name), ns in self.charges.items() if name == phase and position in wanted)
        return total / self.span_ns if self.span_ns else 0.0

    # -- what-if -----------------------------------------------------------------------------------------------

    @cached_property
    def _graph(self) -> tuple[replay.Graph, list[slice]]:
        """The window's dependency graph, and each rank's part of its segments in it."""
        return replay.build(self.timelines, self.matches, self.begin, self.end)

    @cached_property
    def _replayed_ns(self) -> float:
        return self._graph[0].total()

    def gain(self, change: Callable[[int, Ints], Ints | None]) -> float:
        """Share of the run's time that a change of durations would save.

        `change(position, durations)` gets a rank's segment durations over its whole timeline (waits hold their
        transfer alone) and returns the changed ones, or None to leave the rank as it is.
        """
        graph, slices = self._graph
        changed = []
        for position, part in enumerate(slices):
            full = self.timelines[position].durations()
            full[part] = graph.durations[position]
            new = change(position, full.copy())
            changed.append(graph.durations[position] if new is None else new[part])
        before = self._replayed_ns
        return max(0.0, 1 - graph.total(tuple(changed)) / before) if before else 0.0

    def gain_without(
        self, masks: dict[int, Mask], keep: float = 0.0, speed: Mapping[int, float] = MappingProxyType({})
    ) -> float:
        """Share of the run's time saved if the masked segments took `keep` of their time.

        `speed`: rank position -> of what its other work takes now, what it would take then.
        """

        def change(position: int, durations: Ints) -> Ints | None:
            mask, factor = masks.get(position), speed.get(position, 1.0)
            if mask is None and factor == 1.0:
                return None
            if factor != 1.0:
                work = self.timelines[position].segments["collective"] < 0
                durations[work] = (durations[work] * factor).astype(np.int64)
            if mask is not None:
                durations[mask] = (durations[mask] * keep).astype(np.int64)
            return durations

        return self.gain(change)

    # -- samples and counters ----------------------------------------------------------------------------------

    def samples(self, position: int) -> Samples:
        """Stack samples of a rank's training thread."""
        return self.once(_samples_of, self.ranks[position].pid)

    def worker_samples(self, position: int) -> list[Samples]:
        """Stack samples of each of a rank's loader workers."""
        return [self.once(_samples_of, pid) for pid in self.ranks[position].workers]

    def counter(self, name: str, pid: int) -> Series:
        """The readings of one counter of one process (0: of the machine)."""
        return self._counters.get((name, pid), Series(np.empty(0, np.int64), np.empty(0, np.int64)))

    def counter_names(self) -> set[tuple[str, int]]:
        """All counters that were read: (name, pid)."""
        return set(self._counters)

    @cached_property
    def _counters(self) -> dict[tuple[str, int], Series]:
        rows = self.tables.of(Counter)
        key = rows["process"].astype(np.int64) << 16 | rows["name"].astype(np.int64)
        found: dict[tuple[str, int], Series] = {}
        for value in np.unique(key).tolist():
            mine = rows[key == value]
            name = self.tables.name(value >> 16, value & 0xFFFF)
            of = column(mine, Counter, "of")
            for pid in np.unique(of).tolist():
                part = mine[of == pid]
                found[name, pid] = Series(part["time_ns"].astype(np.int64), part["a"].astype(np.int64))
        return found

    @cached_property
    def cpus(self) -> int:
        """CPUs that the run may use."""
        for process in self.tables.processes.values():
            if process.role == "recorder" and process.cpus_allowed:
                return len(process.cpus_allowed)
        return max((len(r.process.cpus_allowed) for r in self.ranks), default=0)

    # -- rows --------------------------------------------------------------------------------------------------

    def rows(self, kind: type[Record], position: int, *, window: bool = True) -> Rows:
        """Records of one kind that a rank's process wrote, in the window or in the whole run."""
        rows = self.tables.of(kind)
        rows = rows[rows["process"] == self.ranks[position].pid]
        if window:
            ends = rows["time_ns"] + rows["duration_ns"]
            rows = rows[(ends > self.begin) & (rows["time_ns"] < self.end)]
        return np.asarray(rows)

    def place(self, position: int, name_id: int) -> Place | None:
        """The line that a name id of a rank's process stands for (a call-site); None where it is none, or was lost."""
        text = self.tables.name(self.ranks[position].pid, name_id)
        return parse_place(text) if text.count(":") >= PLACE_COLONS else None

    def numbers(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Rank numbers of positions."""
        return tuple(sorted(self.ranks[p].rank for p in positions))


def _samples_of(facts: Facts, pid: int) -> Samples:
    return read_samples(facts.tables, pid)
