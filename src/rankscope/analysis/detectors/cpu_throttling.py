"""Finds ranks that a CPU quota or a signal stops again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector, worst_ranks
from rankscope.analysis.facts import Facts, Ints
from rankscope.analysis.host_time import host_time
from rankscope.base.finding import Evidence, Finding
from rankscope.records.host import Counter


class CpuThrottling(Detector):
    """A CPU quota stops the process: the node may be idle while the job stands still.

    ## What it is
    A container's CPU limit (cgroup `cpu.max`, `cpu.cfs_quota_us`) is used up early in each period of 100 ms; all
    threads then stop until the next one. A duty cycle of SIGSTOP and SIGCONT has the same effect.

    ## What shows it
    The cgroup's own count of throttled time, or readings that find the process stopped.

    ## What else looks like it
    Other processes on the same cores (`cpu-contention`): no throttled time.

    ## What to do
    Raise or remove the limit, use no more threads than the quota has CPUs.
    """

    name = "cpu-throttling"
    needs = (Counter,)
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        times = [host_time(facts, p) for p in range(facts.size)]
        if all(t.throttled is None and t.stopped is None for t in times):
            raise CannotExamine("too few readings of the cgroup's CPU counters and the process states (run too short?)")
        lost = np.array([_lost(t.throttled, t.stopped) for t in times])
        if lost.max() < MATERIAL:
            return
        positions = worst_ranks(lost)
        gain = facts.gain(lambda position, durations: _without(facts, position, durations, positions, lost))
        if gain < MATERIAL:
            return
        who = wording.ranks(facts, positions)
        quota = any((times[p].throttled or 0.0) >= (times[p].stopped or 0.0) for p in positions)
        by = "a CPU quota" if quota else "signals (SIGSTOP)"
        evidence = []
        for p in positions:
            throttled, stopped = times[p].throttled, times[p].stopped
            number = (facts.ranks[p].rank,)
            if throttled:
                evidence.append(
                    Evidence(f"rank {number[0]}: time that the CPU quota held it", throttled, "share", number)
                )
            if stopped:
                evidence.append(Evidence(f"rank {number[0]}: readings that found it stopped", stopped, "share", number))
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{who}: stopped by {by} {wording.percent(float(lost[list(positions)].max()))} of the time",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase=None,
            component="CPU quota of the container or job" if quota else "a process that sends SIGSTOP",
            location=None,
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, float(lost[list(positions)].max()) * facts.span_ns, gain),
            evidence=tuple(evidence),
            next=(
                "raise or remove the CPU limit of the container"
                if quota
                else "find what stops it: a limiter, a debugger",
                "use no more threads and workers than the quota has CPUs",
            ),
        )


def _lost(throttled: float | None, stopped: float | None) -> float:
    """Share of its time that a process was stopped, at most 0.95: what did nothing at all would not have been seen."""
    # The cgroup counts throttled time once for each CPU: a process cannot lose more than all of its time.
    return min(0.95, max(throttled or 0.0, stopped or 0.0))


def _without(
    facts: Facts,
    position: int,
    durations: Ints,
    positions: tuple[int, ...],
    lost: np.ndarray,
) -> Ints | None:
    """Working time shortened by what the rank was stopped."""
    if position not in positions:
        return None
    mask = facts.work(position)
    durations[mask] = (durations[mask] * (1 - float(lost[position]))).astype(np.int64)
    return durations
