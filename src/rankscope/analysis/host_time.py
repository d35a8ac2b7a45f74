"""How the operating system treated each rank: time it was ready to run and did not get a CPU, time it was stopped."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts

FEWEST_READINGS = 4
"""Readings of a process's state (two a second) below which their mean says nothing."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """Shares of the window (0 to 1), for one rank; None where the counters were not read often enough."""

    run_delay: float | None
    """The training thread was ready and waited for a CPU."""
    all_threads_delay: float | None
    """The same summed over all threads of the process; may be above 1."""
    cpu: float | None
    """CPUs that the process used."""
    throttled: float | None
    """The CPU quota of its cgroup stopped it."""
    stopped: float | None
    """Readings that found it stopped by a signal."""


def host_time(facts: Facts, position: int) -> HostTime:
    """Read the counters of one rank over the window."""
    pid = facts.ranks[position].pid

    def rate(name: str) -> float | None:
        return facts.counter(name, pid).growth(facts.begin, facts.end)

    stopped = facts.counter("stopped", pid)
    inside = (stopped.time_ns >= facts.begin) & (stopped.time_ns <= facts.end)
    return HostTime(
        run_delay=rate("main_run_delay_ns"),
        all_threads_delay=rate("run_delay_ns"),
        cpu=rate("cpu_ns"),
        throttled=rate("throttled_ns"),
        stopped=float(np.mean(stopped.value[inside])) if inside.sum() >= FEWEST_READINGS else None,
    )


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process that does not belong to the run and used CPU time while it ran."""

    pid: int
    name: str
    cpus: float
    """CPUs that it used on average over the window."""


def strangers(facts: Facts) -> list[Stranger]:
    """Processes outside of the run that used at least a twentieth of a CPU, busiest first.

    A reading says what each used since the reading before; those that began before the window do not count.
    """
    series = {key: facts.counter(*key) for key in facts.counter_names() if key[0].startswith("other:")}
    times = sorted({t for s in series.values() for t in s.time_ns.tolist()})
    covered = {b: b - a for a, b in itertools.pairwise(times) if a >= facts.begin and a < facts.end}
    whole = sum(covered.values())
    found: dict[int, tuple[str, float]] = {}
    for (name, pid), readings in series.items():
        inside = np.isin(readings.time_ns, list(covered))
        used = float(readings.value[inside].sum()) / whole if whole else 0.0
        found[pid] = (name[6:], found.get(pid, ("", 0.0))[1] + used)
    busy = [Stranger(pid, name, cpus) for pid, (name, cpus) in found.items() if cpus >= 0.05]
    return sorted(busy, key=lambda s: -s.cpus)


def threads_wanted(facts: Facts) -> int:
    """Intra-op threads of all ranks of a node together."""
    return sum(max(1, r.process.torch_threads) for r in facts.ranks)


def oversubscribed(facts: Facts) -> bool:
    """Whether the ranks want more threads than there are CPUs, at least one of them more than one thread."""
    several = sum(r.process.torch_threads > 1 for r in facts.ranks)
    return facts.cpus > 0 and several > 0 and threads_wanted(facts) > facts.cpus
