"""Why steps wait for batches: which of the data causes it is, on which ranks, at what cost."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

import numpy as np

from rankscope.analysis import timeline
from rankscope.analysis.activities import builds_dataset
from rankscope.analysis.crowding import cpus_of_workers, speed_without
from rankscope.analysis.detector import MATERIAL, MATERIAL_EVERYWHERE, worst_ranks
from rankscope.analysis.facts import Facts, Ints, Mask
from rankscope.analysis.hot_code import HotPlace, hot_place, hot_place_of_workers, samples_in
from rankscope.analysis.tables import Rows, column
from rankscope.base.finding import Evidence
from rankscope.records.loading import BatchWait, Fetch, LoaderStart

STARVED = 0.5
"""Share of the waiting during which a worker must be making a batch before its making is blamed."""
MAIN_PROCESS_SHARE = 0.15
"""A loader without workers always costs its collate; less than this share is how small models are trained every day."""
IO_WORDS = re.compile(
    r"(^|_)(read|open|fetch|download|get_object|get_bytes|getvalue|pull|recv|request|http|s3|blob|bucket|disk|storage|"
    r"store|stream|seek|mmap|nfs|hdf5?|lmdb|parquet|tar|shard|file|io|cat|stat)(_|$|s)",
    re.I,
)
"""What functions that fetch bytes from somewhere are called."""
NOTICED = 0.02
"""Share of the mean step below which waiting for batches is the call of `next()` itself."""
MOSTLY_WAITS = 0.5
"""CPU time over wall time below which a fetch waits more than it computes."""
CACHED_LATER = 3
"""Fetches that were so many times slower at first than later found their data cached then; a warm-up is milder."""


@dataclass(frozen=True, slots=True)
class DataWait:
    """The assessment that all data detectors share. `cause` is the one that fits, None: nothing is wrong."""

    cause: str | None
    positions: tuple[int, ...]
    """Ranks that wait for batches of their own."""
    ns: float
    """Time of the window charged to data on these ranks."""
    gain: float
    """Share of the run's time that would be saved if they did not wait."""
    gain_with_cpus: float
    """The same if the workers' CPU time were saved too, and ranks that wait for a CPU got it."""
    hot: HotPlace | None
    """Where batches are made, from the stack samples."""
    workers: int
    """Of a loader; 0: the rank makes its batches itself."""
    dataset: str
    """Its class; empty where no loader was seen."""
    restart_share: float
    """Of the waiting, what was the first batch of an iterator with new workers or its start."""
    starved_share: float
    """Of the waiting, what passed while a worker was making a batch."""
    iterators: int
    """Iterators that began with new workers or a new dataset."""
    cpu_share: float | None
    """CPU time over wall time of the fetches."""
    mean_wait_ns: float
    """Per step, the mean of these ranks."""
    fetch_ns: float
    """Median time of one fetch."""
    affinity: int | None
    """CPUs that the workers may use, where fewer than there are workers and fewer than the run's."""
    first_touch: float | None
    """Median fetch time in the first third of the training over that in the last third."""


def assess(facts: Facts) -> DataWait:
    """The assessment of a run, made once."""
    return facts.once(_assess)


def waiting(facts: Facts, wait: DataWait) -> Evidence:
    """The evidence that every data finding begins with."""
    ranks = facts.numbers(wait.positions)
    return Evidence("the rank waits for its batch, per step", wait.mean_wait_ns / 1e6, "ms", ranks)


def _assess(facts: Facts) -> DataWait:
    own = np.array([facts.work_ns(p, timeline.DATA) for p in range(facts.size)])
    positions = worst_ranks(own, NOTICED * facts.mean_step_ns) if own.any() else ()
    masks = {p: facts.work(p, timeline.DATA) for p in positions}
    gain = facts.gain_without(masks) if positions else 0.0
    making = sum(cpus_of_workers(facts, p) for p in positions)
    ns = facts.charged(timeline.DATA, positions) * facts.span_ns
    waits = _rows(facts, BatchWait, positions)
    starts = _rows(facts, LoaderStart, positions)
    workers = int(column(waits, BatchWait, "workers").max()) if len(waits) else 0
    rebuilt_ns = sum(_rebuilding_ns(facts, p) for p in positions)
    restart, iterators = _restarts(waits, starts, rebuilt_ns)
    fetches = _fetches(facts, positions, workers)
    cpu_share = _ratio(column(fetches, Fetch, "cpu_ns").sum(), fetches["duration_ns"].sum()) if len(fetches) else None
    hot = _hot(facts, positions, masks, workers)
    dataset = facts.tables.name(int(waits[-1]["process"]), int(waits[-1]["name"])) if len(waits) else ""
    affinity = _affinity(facts, positions)
    first_touch = _first_touch(facts, positions, fetches)
    mean_wait = float(own[list(positions)].mean()) if positions else 0.0
    fetch_ns = float(np.median(fetches["duration_ns"])) if len(fetches) else 0.0
    wait = DataWait(
        cause=None,
        positions=positions,
        ns=ns,
        gain=gain,
        gain_with_cpus=max(gain, facts.gain_without(masks, speed=speed_without(facts, making))) if making else gain,
        hot=hot,
        workers=workers,
        dataset=dataset,
        restart_share=restart,
        starved_share=_starved(facts, positions, workers),
        iterators=iterators,
        cpu_share=cpu_share,
        mean_wait_ns=mean_wait,
        fetch_ns=fetch_ns,
        affinity=affinity,
        first_touch=first_touch,
    )
    return _with_cause(facts, wait)


def _with_cause(facts: Facts, wait: DataWait) -> DataWait:
    """The assessment with the cause that fits, where the waiting costs enough to be named."""
    everywhere = len(wait.positions) == facts.size
    floor = MATERIAL_EVERYWHERE if everywhere else MATERIAL
    if everywhere and wait.workers == 0:
        floor = MAIN_PROCESS_SHARE
    if not wait.positions or wait.gain < floor:
        return wait
    if wait.restart_share >= 0.5 and wait.iterators >= 2:
        cause = "loader-worker-restart"
    elif wait.workers and wait.starved_share < STARVED:
        return wait  # the batches were there: taking them over is slow, and that is not the loader's fault
    elif wait.workers > 1 and wait.affinity is not None and (wait.cpu_share or 0) > 0.0:
        cause = "worker-affinity"
    elif _is_storage(wait):
        cause = "slow-storage"
    else:
        cause = "slow-data-loading"
    return replace(wait, cause=cause)


def _rows(facts: Facts, kind: type[BatchWait] | type[LoaderStart], positions: tuple[int, ...]) -> Rows:
    parts = [facts.rows(kind, p) for p in positions]
    return np.concatenate(parts) if parts else facts.tables.of(kind)[:0]


def _starved(facts: Facts, positions: tuple[int, ...], workers: int) -> float:
    """Share of the waiting during which a worker of the rank was making a batch; 1 without workers.

    A rank may also wait while batches lie ready: to take one over costs the rank and the worker CPU time.
    """
    if not workers:
        return 1.0
    waited = busy = 0.0
    for p in positions:
        waits = facts.rows(BatchWait, p)
        rows = facts.tables.of(Fetch)
        rows = rows[np.isin(rows["process"], facts.ranks[p].workers)]
        starts = rows["time_ns"].astype(np.int64)
        ends = starts + rows["duration_ns"].astype(np.int64)
        begin = waits["time_ns"].astype(np.int64)
        end = begin + waits["duration_ns"].astype(np.int64)
        waited += float((end - begin).sum())
        busy += float((_covered(starts, ends, end) - _covered(starts, ends, begin)).sum())
    return _ratio(busy, waited) or 0.0


def _covered(starts: Ints, ends: Ints, times: Ints) -> Ints:
    """How much of the time before each moment lies in at least one interval; `starts` rise."""
    if not len(starts):
        return np.zeros(len(times), np.int64)
    until = np.maximum.accumulate(ends)
    fresh = np.append(True, starts[1:] > until[:-1])
    begin = starts[fresh]
    finish = until[np.append(np.flatnonzero(fresh)[1:] - 1, len(starts) - 1)]
    before = np.append(0, np.cumsum(finish - begin))
    at = np.searchsorted(begin, times, side="right") - 1
    inside = np.clip(times - begin[np.maximum(at, 0)], 0, (finish - begin)[np.maximum(at, 0)])
    return np.where(at >= 0, before[np.maximum(at, 0)] + inside, 0)


def _rebuilding_ns(facts: Facts, position: int) -> float:
    """Time of the window in which a rank built datasets anew."""
    samples = facts.samples(position)
    inside = np.flatnonzero((samples.time_ns >= facts.begin) & (samples.time_ns <= facts.end)).tolist()
    datasets = facts.activities.datasets
    return float(sum(samples.weight_ns[i] for i in inside if builds_dataset(samples.stack[i], datasets)))


def _restarts(waits: Rows, starts: Rows, rebuilt_ns: float) -> tuple[float, int]:
    """(share of the waiting that starting iterators took, iterators that began with new workers or a new dataset)."""
    if not len(waits):
        return 0.0, 0
    fresh = column(starts, LoaderStart, "reused") == 0
    with_workers = column(starts, LoaderStart, "workers") > 0
    first = column(waits, BatchWait, "ordinal") == 0
    first_ns = float(waits["duration_ns"][first & (column(waits, BatchWait, "workers") > 0)].sum())
    start_ns = float(starts["duration_ns"][fresh & with_workers].sum())
    total = float(waits["duration_ns"].sum() + starts["duration_ns"].sum()) + rebuilt_ns
    loaders = len(np.unique(column(starts, LoaderStart, "loader"))) if rebuilt_ns else 0
    return _ratio(first_ns + start_ns + rebuilt_ns, total) or 0.0, max(loaders, int((fresh & with_workers).sum()))


def _fetches(facts: Facts, positions: tuple[int, ...], workers: int) -> Rows:
    """Fetches of these ranks' workers, or on the ranks themselves."""
    rows = facts.tables.of(Fetch)
    pids = [pid for p in positions for pid in (facts.ranks[p].workers if workers else (facts.ranks[p].pid,))]
    rows = rows[np.isin(rows["process"], pids)]
    return rows[(rows["time_ns"] < facts.end)]


def _hot(facts: Facts, positions: tuple[int, ...], masks: dict[int, Mask], workers: int) -> HotPlace | None:
    found = []
    for p in positions:
        hot = hot_place_of_workers(facts, p) if workers else None
        found.append(hot or hot_place(facts, p, samples_in(facts, p, masks[p])))
    return max((h for h in found if h is not None), key=lambda h: h.samples, default=None)


def _affinity(facts: Facts, positions: tuple[int, ...]) -> int | None:
    """CPUs of the workers where these are fewer than there are workers and fewer than the run has."""
    narrow: list[int] = []
    for p in positions:
        for pid in facts.ranks[p].workers:
            allowed = facts.tables.processes[pid].cpus_allowed
            narrow.append(len(allowed))
    if not narrow or max(narrow) >= facts.cpus:
        return None
    workers = max((len(facts.ranks[p].workers) for p in positions), default=0)
    return max(narrow) if max(narrow) < min(workers, facts.cpus) else None


def _first_touch(facts: Facts, positions: tuple[int, ...], fetches: Rows) -> float | None:
    """How much slower fetches were during the first third of the training than during the last third."""
    if len(fetches) < 12:
        return None
    begin = int(fetches["time_ns"].min())
    third = (facts.end - begin) // 3
    early = fetches["duration_ns"][fetches["time_ns"] < begin + third]
    late = fetches["duration_ns"][fetches["time_ns"] > begin + 2 * third]
    return _ratio(float(np.median(early)), float(np.median(late))) if len(early) > 3 and len(late) > 3 else None


def _is_storage(wait: DataWait) -> bool:
    """The fetches wait instead of computing, and what they wait in reads from somewhere (or only the first time)."""
    hot = wait.hot
    if wait.cpu_share is not None and wait.cpu_share >= MOSTLY_WAITS:
        return False
    # Little CPU time may also mean that it got no CPU: the kernel says at each sample whether it wanted one.
    if hot is not None and hot.blocked < MOSTLY_WAITS:
        return False
    if wait.first_touch is not None and wait.first_touch > CACHED_LATER:
        return True
    return hot is not None and reads_from_somewhere(hot)


def reads_from_somewhere(hot: HotPlace) -> bool:
    """Whether the function, its class or its file is named like one that reads."""
    names = [
        *hot.place.function.replace("<locals>", "").split("."),
        os.path.splitext(os.path.basename(hot.place.file))[0],
    ]
    return any(IO_WORDS.search(_snake(name)) for name in names)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _ratio(a: float, b: float) -> float | None:
    return float(a) / float(b) if b else None
