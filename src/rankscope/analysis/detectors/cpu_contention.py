"""Finds ranks whose CPU time goes to processes outside of the run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, MATERIAL_EVERYWHERE, CannotExamine, Detector, worst_ranks
from rankscope.analysis.facts import Facts, Ints
from rankscope.analysis.host_time import host_time, oversubscribed, strangers
from rankscope.base.finding import Evidence, Finding
from rankscope.records.host import Counter

STRANGERS_CPUS = 0.15
"""CPUs that processes outside of the run must have used to be blamed."""


class CpuContention(Detector):
    """Another process takes CPU time from a rank: it is ready to run and has to wait for a core.

    ## What it is
    A neighbour on the node (another job, a build, a data copy) uses the cores that the rank needs.

    ## What shows it
    The kernel's own count of the time that the training thread was runnable and not running (`/proc/PID/schedstat`),
    and the CPU time of processes that do not belong to the run.

    ## What else looks like it
    Too many threads of the run itself (`thread-oversubscription`), a quota (`cpu-throttling`).

    ## What to do
    Pin ranks to cores of their own, move the neighbour away, ask the scheduler for whole nodes or exclusive cores.
    """

    name = "cpu-contention"
    needs = (Counter,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        times = [host_time(facts, p) for p in range(facts.size)]
        if any(t.run_delay is None for t in times):
            raise CannotExamine("the kernel's run-queue times were not read in the window (run too short, or no /proc)")
        others = strangers(facts)
        taken = sum(s.cpus for s in others)
        # Strangers cannot keep a rank waiting for longer than they run; for the rest the run's own processes crowd it.
        delays = np.array([min(t.run_delay or 0.0, taken) for t in times])
        if delays.max() < MATERIAL or taken < STRANGERS_CPUS or oversubscribed(facts):
            return
        positions = worst_ranks(delays, MATERIAL)
        everywhere = len(positions) == facts.size and facts.size > 1
        gain = facts.gain(lambda position, durations: _without_delay(facts, position, durations, positions, delays))
        if gain < (MATERIAL_EVERYWHERE if everywhere else MATERIAL):
            return
        who = wording.ranks(facts, positions)
        worst = others[0]
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.85 if not everywhere else 0.7,
            title=f"{who} must wait for a CPU {wording.percent(float(delays[list(positions)].max()))} of the time: "
            f"{worst.name} (process {worst.pid}) uses {worst.cpus:.1f} CPUs",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase=None,
            component=f"process {worst.pid} ({worst.name}) on the same cores",
            location=None,
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, float(delays[list(positions)].max()) * facts.span_ns, gain),
            evidence=(
                *(
                    Evidence(
                        f"rank {facts.ranks[p].rank} was ready to run and had no CPU",
                        float(delays[p]),
                        "share",
                        (facts.ranks[p].rank,),
                    )
                    for p in range(facts.size)
                ),
                *(
                    Evidence(f"CPUs used by {s.name} (process {s.pid}), which is not observed", s.cpus, "count")
                    for s in others[:2]
                ),
            ),
            next=(
                "move the other process away, or give the ranks cores of their own (taskset, numactl, cpuset)",
                "ask the scheduler for exclusive cores or whole nodes",
            ),
        )


def _without_delay(
    facts: Facts,
    position: int,
    durations: Ints,
    positions: tuple[int, ...],
    delays: np.ndarray,
) -> Ints | None:
    """Working time shortened by what the rank waited for a CPU while it worked."""
    if position not in positions:
        return None
    mask = facts.work(position)
    busy = float(durations[mask].sum())
    if not busy:
        return None
    keep = max(0.05, 1 - float(delays[position]) * facts.span_ns / busy)
    durations[mask] = (durations[mask] * keep).astype(np.int64)
    return durations
