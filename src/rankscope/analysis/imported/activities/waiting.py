"""What an idle GPU waits for, from the calls of the host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.device_traces.intervals import Intervals, complement, covered, minus, union
from rankscope.records.imported.device_activity import DeviceActivity

SYNC: Final = re.compile(r"Synchronize|cu(?:da)?Memcpy(?!.*Async)|cu(?:da)?EventQuery|cuda?Free(?!Async)")
"""Calls after which the device is known to have nothing left to do."""
DATA: Final = re.compile(r"data_?load|dataset|next_?batch|load_?batch|fetch|collate|prefetch", re.IGNORECASE)
AT_ONCE_NS: Final = 20_000
"""What a launch takes to reach the device: the host was in a wait until the device ran dry if it ended that close."""
SHORT_NS: Final = 1_000
"""Gaps between kernels that were queued behind each other: the device's own pace."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """ns of idle time, each part of all gaps that have the reason."""

    device_ns: int
    """The next thing had been asked for before the gap began: it waits for another stream, or the device's own pace."""
    launch_ns: int
    """From the call to the start on the device."""
    after_sync_ns: int
    """The host had waited until the device ran dry, and takes so long to ask for more."""
    host_ns: int
    """The host does something else, before it asks for more."""
    unknown_ns: int
    """The call that ended the gap is not in the file."""
    syncs: int
    """Waits of the host that let the device run dry."""
    sync_name: str
    """The call that did so most."""
    launches: int
    starved: int
    """Launches that found the device idle, of all; those in a queue do not."""
    starved_gap_ns: float
    """Median gap before these."""
    data_ns: int
    """Of the host's time, inside ranges that are named after loading data."""
    range: str
    """The marked range that covers most of the host's time; empty where none does."""
    range_ns: int


def waiting(t: DeviceActivity, rows: NDArray[np.intp], busy: Intervals) -> Waiting | None:
    """`rows`: the activities of one GPU. None where no call of the host is recorded, or none belongs to them."""
    if not len(t.call_start_ns) or not len(busy.start):
        return None
    call = _calls(t, rows)
    if (call < 0).all():
        return None
    gaps = complement(busy, int(busy.start[0]), int(busy.end[-1]))
    start = t.start_ns[rows]
    # The activity that ends a gap: the first that starts at its end.
    ending = rows[np.minimum(np.searchsorted(start, gaps.end, side="left"), len(rows) - 1)]
    by_row = np.full(len(t.start_ns), -1, np.int64)
    by_row[rows] = call
    cause = by_row[ending]
    length = gaps.end - gaps.start
    known = cause >= 0
    asked = np.where(known, t.call_start_ns[np.maximum(cause, 0)], gaps.end)
    queued = known & ((asked <= gaps.start) | (length <= SHORT_NS))
    late = known & ~queued
    host = np.where(late, np.clip(asked - gaps.start, 0, length), 0)
    launch = np.where(late, length - host, 0)
    thread = _thread(t, call)
    waits = _waits(t, thread)
    synced, names = _after_sync(t, waits, gaps)
    synced &= late
    of_host = Intervals(gaps.start[late & ~synced], (gaps.start + host)[late & ~synced])
    of_host = union(of_host.start, of_host.end)
    name, name_ns, data_ns = _ranges(t, thread, of_host)
    lasting = late & (length > SHORT_NS)
    return Waiting(
        device_ns=int(length[queued].sum()),
        launch_ns=int(launch.sum()),
        after_sync_ns=int(host[synced].sum()),
        host_ns=int(host[late & ~synced].sum()),
        unknown_ns=int(length[~known].sum()),
        syncs=int(synced.sum()),
        sync_name=_most(names[synced], t.names),
        launches=int((call >= 0).sum()),
        starved=int(lasting.sum()),
        starved_gap_ns=float(np.median(length[lasting])) if lasting.any() else 0.0,
        data_ns=data_ns,
        range=name,
        range_ns=name_ns,
    )


def _calls(t: DeviceActivity, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """[activity] the call that asked for it; -1: not in the file."""
    processes = t.process_of(t.call_thread)
    # Correlations are counted in each process anew; where activities have no process, one process is all there is.
    mixed = (t.process[rows] >= 0).all() and len(np.unique(t.process[rows])) > 1
    order = np.lexsort((t.call_correlation, processes)) if mixed else np.argsort(t.call_correlation, kind="stable")
    found = np.full(len(rows), -1, np.int64)
    own = np.unique(t.process[rows]) if (t.process[rows] >= 0).all() else np.array([-1])
    for process in own.tolist():
        mine = order if process < 0 else order[processes[order] == process]
        if not len(mine) and len(own) == 1:
            mine = order  # a trimmed file numbers processes and threads as it likes
        chosen = np.ones(len(rows), bool) if process < 0 else t.process[rows] == process
        wanted = t.correlation[rows][chosen]
        at = np.minimum(np.searchsorted(t.call_correlation[mine], wanted), max(0, len(mine) - 1))
        if len(mine):
            hit = (t.call_correlation[mine[at]] == wanted) & (wanted >= 0)
            found[chosen] = np.where(hit, mine[at], -1)
    return found


def _thread(t: DeviceActivity, call: NDArray[np.int64]) -> int:
    """The thread that asks for most of what runs."""
    threads, counts = np.unique(t.call_thread[call[call >= 0]], return_counts=True)
    return int(threads[np.argmax(counts)])


def _waits(t: DeviceActivity, thread: int) -> NDArray[np.intp]:
    """Calls of the thread that wait for the device, in order of their end."""
    is_wait = np.array([bool(SYNC.search(name)) for name in t.names], bool)
    if not len(is_wait):
        return np.empty(0, np.intp)
    rows = np.flatnonzero((t.call_thread == thread) & (t.call_name >= 0) & is_wait[np.maximum(t.call_name, 0)])
    return rows[np.argsort(t.call_end_ns[rows], kind="stable")]


def _after_sync(
    t: DeviceActivity, waits: NDArray[np.intp], gaps: Intervals
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """([gap] whether the host waited when the device ran dry, [gap] the name of that call)."""
    if not len(waits):
        return np.zeros(len(gaps.start), bool), np.full(len(gaps.start), -1, np.int64)
    ends = t.call_end_ns[waits]
    at = np.minimum(np.searchsorted(ends, gaps.start, side="left"), len(waits) - 1)
    # It had begun before, and returned as soon as the device was done.
    hit = (t.call_start_ns[waits[at]] < gaps.start) & (ends[at] >= gaps.start)
    hit &= ends[at] <= np.minimum(gaps.end, gaps.start + 10 * AT_ONCE_NS)
    return hit, t.call_name[waits[at]].astype(np.int64)


def _ranges(t: DeviceActivity, thread: int, of_host: Intervals) -> tuple[str, int, int]:
    """(marked range with most of the host's time, its ns, ns in ranges named after data). Outer ranges that hold nearly
    everything say nothing: the shortest one with at least half of the time is taken."""
    if not len(t.range_start_ns) or not of_host.total:
        return "", 0, 0
    mine = np.flatnonzero((t.range_thread == thread) & (t.range_name >= 0))
    if not len(mine):
        return "", 0, 0
    inside = covered(of_host, t.range_start_ns[mine], t.range_end_ns[mine])
    names, at = np.unique(t.range_name[mine], return_inverse=True)
    ns = np.bincount(at, inside.astype(float), len(names))
    whole = np.bincount(at, (t.range_end_ns - t.range_start_ns)[mine].astype(float), len(names))
    data = np.array([bool(DATA.search(t.names[n])) for n in names], bool)
    covering = [i for i in np.flatnonzero(data)]
    loading = 0
    if covering:
        rows = mine[np.isin(at, covering)]
        spans = union(t.range_start_ns[rows], t.range_end_ns[rows])
        loading = of_host.total - minus(of_host, spans).total
    half = np.flatnonzero(ns >= of_host.total / 2)
    if not len(half):
        return "", 0, loading
    best = int(half[np.argmin(whole[half])])
    return t.names[names[best]], int(min(ns[best], of_host.total)), loading


def _most(numbers: NDArray[np.int64], names: tuple[str, ...]) -> str:
    numbers = numbers[numbers >= 0]
    return re.sub(r"_v\d+$", "", names[int(np.bincount(numbers).argmax())]) if len(numbers) else ""
