"""What observing the run cost it, from the run itself.

There are no bare steps to compare with: on a machine whose steps vary by 3 %, a difference of 1 % would need hundreds
of them, each a hole in every other analysis, and what costs most (a collective's way through Python) would run in them
as well.
"""

from __future__ import annotations

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.host import SAMPLE_SWITCH_NS, StackSample
from rankscope.records.numerics import Sampling
from rankscope.records.training import Step


def measure_overhead(facts: Facts) -> tuple[float | None, str]:
    """(share of the step time, how it was measured); None where there are too few steps.

    Hooks time themselves, and a measured factor stands for what they cannot see (`Step.own_ns`); to that come the
    sampling thread and the recorder's part of the CPUs. The median over the steps is taken, so that a step that was
    interrupted by something else does not count as our cost.
    """
    if not facts.enough or facts.inference:
        return None, "not measured: too few training steps"
    hooks = [_hooks_share(facts, position) for position in range(facts.size)]
    if not hooks:
        return None, "not measured: no steps in the window"
    samples = max(_samples_share(facts, position) for position in range(facts.size))
    tensors = max(_sampling_share(facts, position) for position in range(facts.size))
    recorder = _recorder_share(facts)
    words = f"hooks {max(hooks):.2%}, timed by themselves on the worst rank; stack samples {samples:.2%}"
    if tensors:
        words += f"; statistics of tensors {tensors:.2%}"
    if recorder is not None:
        words += f"; recorder {recorder:.2%} of all CPUs"
    return max(hooks) + samples + tensors + (recorder or 0.0), words


def _hooks_share(facts: Facts, position: int) -> float:
    rows = facts.rows(Step, position)
    own = column(rows, Step, "own_ns")
    timed = own > 0
    if not timed.any():
        return 0.0
    # One step in many is timed: what it took is held against the time that a step usually takes.
    return float(np.median(own[timed]) / max(1.0, float(np.median(rows["duration_ns"]))))


def _samples_share(facts: Facts, position: int) -> float:
    rows = facts.rows(StackSample, position)
    return (float(rows["duration_ns"].sum()) + len(rows) * SAMPLE_SWITCH_NS) / max(1, facts.span_ns)


def _sampling_share(facts: Facts, position: int) -> float:
    rows = facts.rows(Sampling, position)
    return float(rows["duration_ns"].sum()) / max(1, facts.span_ns)


def _recorder_share(facts: Facts) -> float | None:
    """What the recorder takes from the ranks: its CPU time, as far as no CPU was idle; None where not counted."""
    pids = [process.pid for process in facts.tables.processes.values() if process.role == "recorder"]
    rates = [facts.counter("recorder_cpu_ns", pid).growth(facts.begin, facts.end) for pid in pids]
    known = [rate for rate in rates if rate is not None]
    if not known or not facts.cpus:
        return None
    busy = facts.counter("machine_busy_ns", 0).growth(facts.begin, facts.end)
    return sum(known) / facts.cpus * min(1.0, (busy if busy is not None else facts.cpus) / facts.cpus)
