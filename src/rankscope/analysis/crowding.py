"""What the ranks would do faster if something in the run asked for less CPU time."""

from __future__ import annotations

from collections import Counter as Counted

from rankscope.analysis.facts import Facts


def cpus_of_workers(facts: Facts, position: int) -> float:
    """CPUs that the loader workers of a rank use."""
    readings = [facts.counter("cpu_ns", pid) for pid in facts.ranks[position].workers]
    return sum(series.growth(facts.begin, facts.end) or 0.0 for series in readings)


def cpus_beside(facts: Facts, position: int) -> float:
    """CPUs that threads of a rank beside its training thread use: those that communicate, where it has one thread."""
    rank = facts.ranks[position]
    if rank.process.torch_threads > 1:
        return 0.0
    used = facts.counter("cpu_ns", rank.pid).growth(facts.begin, facts.end)
    main = facts.counter("main_cpu_ns", rank.pid).growth(facts.begin, facts.end)
    return max(0.0, used - main) if used is not None and main is not None else 0.0


def speed_without(facts: Facts, gone: float) -> dict[int, float]:
    """Rank position -> of what its own work takes now, what it would take if `gone` CPUs fewer were asked for.

    A thread that is ready and gets no CPU stretches what it does: by its run delay over its CPU time. That delay goes
    as far as the CPUs then suffice. Ranks whose counters were not read, and machines on which nobody waits for a CPU,
    are left out.
    """
    busy = facts.counter("machine_busy_ns", 0).growth(facts.begin, facts.end)
    if not gone or busy is None or not facts.cpus:
        return {}
    cpu: dict[int, float] = {}
    delay: dict[int, float] = {}
    for position in range(facts.size):
        pid = facts.ranks[position].pid
        used = facts.counter("main_cpu_ns", pid).growth(facts.begin, facts.end)
        waited = facts.counter("main_run_delay_ns", pid).growth(facts.begin, facts.end)
        if used and waited is not None:
            cpu[position], delay[position] = used, waited
    total = sum(delay.values())
    if not total:
        return {}
    missing = max(0.0, busy - gone + total - facts.cpus)
    kept = min(1.0, missing / total)
    return {p: (cpu[p] + kept * delay[p]) / (cpu[p] + delay[p]) for p in cpu}


def more_ranks_than_cpus(facts: Facts) -> bool:
    """Whether a host runs more ranks than it has CPUs for them: a transfer then waits for its turn as well."""
    hosts = Counted(rank.process.host for rank in facts.ranks)
    return bool(facts.cpus) and max(hosts.values(), default=0) > facts.cpus
