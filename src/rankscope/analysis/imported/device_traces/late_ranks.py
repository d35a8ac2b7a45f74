"""A rank comes late to collectives, and the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.device_traces.data_loading import loading_share
from rankscope.analysis.imported.device_traces.lateness import Lateness
from rankscope.analysis.imported.device_traces.traces import Traces
from rankscope.analysis.wording import ms, percent
from rankscope.base.finding import Evidence, Finding

MOSTLY: Final = 0.5
"""Of the lost time that a reason must account for to be named."""
MOVING: Final = 0.1
"""Of the window, from which waiting for ranks that take turns in being late is worth a finding."""
EXPLAINED: Final = 0.7
"""Of the lost time in which the rank that came last had computed for longer, for uneven work to be the reason."""


@dataclass(frozen=True, slots=True)
class _Extra:
    """What a late rank did more of than the others, between the first and the last call that all made; ns but for
    kernels."""

    compute: float
    idle: float
    kernels: float
    """As a share of the others' number."""


def late_ranks(traces: Traces, explained: set[int]) -> list[Finding]:
    """One finding for the late ranks of a group, or one for work that moves between ranks; none of the ranks in
    `explained` (positions), whose lateness another finding accounts for."""
    for lateness in traces.lateness:
        late = [row for row in lateness.late if lateness.group.members[row] not in explained]
        if late:
            return [_late(traces, lateness, late)]
        if not lateness.late and (found := _moving(traces, lateness)) is not None:
            return [found]
    return []


def _extra(lateness: Lateness, row: int) -> _Extra:
    group = lateness.group
    others = [other for other in range(len(group.members)) if other not in lateness.late]

    def more(column: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[float, float]:
        done = (column[:, -1] - column[:, 0]).astype(float)
        usual = float(np.median(done[others]))
        return float(done[row]) - usual, usual

    kernels, usual = more(group.kernels)
    return _Extra(more(group.compute_ns)[0], more(group.idle_ns)[0], kernels / usual if usual else 0.0)


def _late(traces: Traces, lateness: Lateness, late: list[int]) -> Finding:
    group = lateness.group
    positions = [group.members[row] for row in late]
    worst = max(late, key=lambda row: int(lateness.lost_ns[row]))
    lost = int(lateness.lost_ns[worst])
    share = lost / lateness.window_ns
    extra = _extra(lateness, worst)
    digest = traces.digests[group.members[worst]]
    ranks = traces.ranks(positions)
    named = traces.named(positions)
    come = "comes" if len(positions) == 1 else "come"
    others = [group.members[row] for row in range(len(group.members)) if row not in lateness.late]
    usual_loading = float(np.median([loading_share(traces.digests[at]) for at in others]))
    loading = (loading_share(digest) - usual_loading) * lateness.window_ns
    waited = f"the others wait {ms(lost)} for {'it' if len(positions) == 1 else 'them'} ({percent(share)} of the time)"
    cause, confidence, component = "slow-code", 0.6, None
    phase: str | None = None
    why = f"{named} {come} late to collectives"
    steps: tuple[str, ...]
    if extra.compute >= MOSTLY * lost:
        cause, confidence = "uneven-work", 0.75
        why += f": its device computes {ms(extra.compute)} longer"
        steps = (
            "compare batch sizes, sequence lengths and token counts of the ranks; balance by length or pack sequences",
            "look for work that only some ranks do (evaluation, logging, an uneven split of layers or experts)",
        )
    elif loading >= MOSTLY * lost:
        cause, confidence, phase, component = "slow-data-loading", 0.8, "data", digest.loader or None
        why += ": it waits for its loader"
        steps = ("compare the data and the disks of that rank with the others", "give its loader more workers")
    elif extra.idle >= MOSTLY * lost:
        component = _slowest_on_host(traces, lateness, worst)
        confidence = 0.75
        why += ": its host launches late, its kernels are as fast as the others'"
        steps = (
            "record a profile with with_stack=True on that rank and on another, and compare what the host does",
            "look for work on that rank only (logging, checkpoints, a debugger) and for a busy core on its machine",
        )
    else:
        confidence = 0.4
        why += ", for a reason that the trace does not show"
        steps = ("record a profile with with_stack=True on all ranks",)
    first, last = traces.steps(positions)
    waits = group.wait.sum(axis=1)
    rest = [row for row in range(len(group.members)) if row not in lateness.late]
    return Finding(
        cause=cause,
        severity="warning",
        confidence=confidence,
        title=f"{cause}: {why}; {waited}",
        ranks=ranks,
        all_ranks=False,
        phase=phase,
        component=component,
        location=None,
        first_step=first,
        last_step=last,
        cost=traces.cost(positions, share, min(1.0, share)),
        evidence=(
            Evidence("in collectives it spends", int(group.duration[worst].sum()) / 1e6, "ms", ranks),
            Evidence(
                "and the other ranks, in the median",
                float(np.median(group.duration[rest].sum(axis=1))) / 1e6,
                "ms",
                traces.ranks([group.members[row] for row in rest]),
            ),
            Evidence("others wait on it for", lost / 1e6, "ms", ranks),
            Evidence(
                f"of {group.duration.shape[1]} collectives it came last, or among the last, to",
                int(lateness.last_to_come[worst]),
                "count",
                ranks,
            ),
            Evidence("its device is idle for longer than the others' by", extra.idle / 1e6, "ms", ranks),
            Evidence("and computes for longer by", extra.compute / 1e6, "ms", ranks),
            Evidence("median wait of the others in all", float(np.median(waits[rest])) / 1e6, "ms"),
        ),
        next=steps,
    )


def _slowest_on_host(traces: Traces, lateness: Lateness, row: int) -> str | None:
    """The operator on which the rank's host spends most more than the others'."""
    members = lateness.group.members
    others = [members[other] for other in range(len(members)) if other not in lateness.late]
    mine = traces.digests[members[row]]
    best, extra = None, 0.0
    for operator in mine.operators:
        usual = [
            next((one.host_self_ns for one in traces.digests[at].operators if one.name == operator.name), 0)
            for at in others
        ]
        more = operator.host_self_ns - float(np.median(usual))
        if more > extra:
            best, extra = operator.name, more
    return best if extra >= MOSTLY * int(lateness.lost_ns[row]) else None


def _moving(traces: Traces, lateness: Lateness) -> Finding | None:
    """Ranks that take turns in coming last, each because it had more to compute: work of uneven size."""
    group = lateness.group
    share = lateness.total_ns / lateness.window_ns
    if share < MOVING or group.duration.shape[1] < 2 or len(group.members) < 2:
        return None
    computed = np.diff(group.compute_ns, axis=1)
    waited = group.wait[:, 1:]
    last = waited.argmin(axis=0)
    calls = np.arange(waited.shape[1])
    second = np.sort(waited, axis=0)[1]
    longer = computed[last, calls] - np.median(computed, axis=0)
    explains = float(second[longer >= MOSTLY * second].sum() / second.sum()) if second.sum() else 0.0
    if explains < EXPLAINED or len(np.unique(last[second > 0])) < 2:
        return None
    positions = list(group.members)
    ranks = traces.ranks(positions)
    first, last_step = traces.steps(positions)
    return Finding(
        cause="uneven-work",
        severity="warning",
        confidence=0.75,
        title=f"uneven-work: ranks take turns in computing for longer, and the others wait "
        f"{ms(lateness.total_ns)} in all ({percent(share)} of the time)",
        ranks=ranks,
        all_ranks=True,
        phase=None,
        component=None,
        location=None,
        first_step=first,
        last_step=last_step,
        cost=traces.cost(positions, min(1.0, share), min(1.0, share)),
        evidence=(
            Evidence("ranks wait for the last to come", lateness.total_ns / 1e6, "ms", ranks),
            Evidence("of that time the last one had computed for longer", explains, "share", ranks),
            Evidence("ranks that came last in turn", len(np.unique(last[second > 0])), "count"),
        ),
        next=(
            "give each rank the same number of tokens: batches by length, packed sequences, balanced experts",
            "compare sequence lengths and batch sizes of the ranks step by step",
        ),
    )
