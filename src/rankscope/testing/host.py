"""What the recorder adds from outside, and the stack sampler from inside: counters and samples of a made-up run."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.records.host import Counter, StackSample
from rankscope.testing.knobs import Knob, value
from rankscope.testing.places import GC_CALLBACK, WORKER, Frames
from rankscope.testing.simulation import ASLEEP, HOLDING, LATE_NS, MS, PATIENT_LATE_NS, PYTHON, Activity
from rankscope.testing.writer import Writer

READ_EVERY_NS = 500 * MS
"""As the recorder does."""
SAMPLE_CPU_NS = 45_000
"""CPU time of our own thread in a rank for one stack sample."""
IDLE_WORKER: Frames = (*WORKER, "/usr/lib/python3.11/multiprocessing/queues.py:113:Queue.get")
"""The stack of a loader worker that waits for the next order."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process that does not belong to the run."""

    name: str
    cpus: float
    pid: int = 77


@dataclass(frozen=True, slots=True)
class Host:
    """The operating system's counters of each rank. The step of each knob is the number of the reading."""

    cpus: int = 8
    run_delay: Knob = 0.002
    """Share of the time that the training thread was ready and had no CPU."""
    all_threads_delay: Knob = 0.004
    """The same summed over all threads."""
    cpu: Knob = 1.0
    """CPUs used by the process."""
    throttled: Knob | None = 0.0
    """Share of the time that the quota stopped it; None: no cgroup counters."""
    stopped: Knob = 0.0
    """1 where a reading finds it stopped."""
    send_queue_bytes: Knob | None = 0.0
    """Bytes not yet sent; None: no connections were seen."""
    machine_busy: float = 2.4
    """CPUs in use on the whole machine."""
    recorder_cpu: float = 0.01
    """CPUs used by the recorder."""
    strangers: tuple[Stranger, ...] = ()
    more: Mapping[str, Knob] = field(default_factory=dict)
    """Gauges of your own by name."""
    growing: Mapping[str, Knob] = field(default_factory=dict)
    """Counters of your own by name: by how much each grows a second."""


def write_counters(recorder: Writer, host: Host, ranks: Sequence[tuple[int, int]], begin: int, end: int) -> None:
    """Readings of all ranks, given as (rank, pid), every half second."""
    totals: dict[tuple[str, int], float] = {}
    rates = {
        "main_run_delay_ns": host.run_delay, "run_delay_ns": host.all_threads_delay, "cpu_ns": host.cpu,
        "throttled_ns": host.throttled,
    }  # fmt: skip
    units = {name: READ_EVERY_NS for name in rates} | {name: READ_EVERY_NS / 1e9 for name in host.growing}
    gauges = {"stopped": host.stopped, "send_queue_bytes": host.send_queue_bytes, **host.more}

    def write(name: str, now: int, number: float, of: int) -> None:
        recorder.put(Counter, now, now, 0, name=name, value=round(number), of=of)

    for reading, now in enumerate(range(begin, end, READ_EVERY_NS)):
        for rank, pid in ranks:
            for name, knob in {**rates, **host.growing}.items():
                if knob is None:
                    continue
                grown = value(knob, rank, reading) * units[name] if reading else 0.0
                totals[name, pid] = totals.get((name, pid), 0.0) + grown
                write(name, now, totals[name, pid], pid)
            for name, knob in gauges.items():
                if knob is not None:
                    write(name, now, value(knob, rank, reading), pid)
        elapsed = now - begin
        write("machine_busy_ns", now, host.machine_busy * elapsed, 0)
        write("recorder_cpu_ns", now, host.recorder_cpu * elapsed, recorder.pid)
        for stranger in host.strangers:
            write(f"other:{stranger.name}", now, stranger.cpus * READ_EVERY_NS, stranger.pid)


def write_samples(
    writer: Writer,
    activities: Sequence[Activity],
    begin: int,
    end: int,
    *,
    hz: float,
    seed: str,
    idle: Frames = (),
    states: bool = True,
) -> None:
    """One sample every 1/hz seconds (and up to 8 ms more, as threads wake late).

    `idle`: the stack between activities; () where a thread without activity is not sampled. `states`: the kernel's
    letter for the thread's state is known.
    """
    if hz <= 0 or not activities:
        return
    draw = random.Random(seed)
    starts = [a.start for a in activities]
    used = [0.0]
    for activity in activities:
        used.append(used[-1] + (activity.end - activity.start) * activity.cpu)
    planned = begin
    while True:
        planned += round(1e9 / hz) + draw.randrange(8 * MS)
        if planned >= end:
            return
        at = bisect_right(starts, planned) - 1
        now, late, state = planned, LATE_NS[ASLEEP], ASLEEP
        if at >= 0 and planned < activities[at].end:
            activity = activities[at]
            cpu = used[at] + (planned - activity.start) * activity.cpu
            frames, phase, step, state = activity.frames, activity.phase, activity.step, activity.state
            if state == HOLDING:
                now, late, frames = activity.end - 1000, activity.end - planned, (*frames, *GC_CALLBACK)
                cpu = used[at] + (now - activity.start) * activity.cpu
            else:
                late = LATE_NS[state] if states or state != PYTHON else PATIENT_LATE_NS
        elif idle:
            cpu, frames, phase, step = used[at + 1], idle, "data", activities[at].step if at >= 0 else 0
        else:
            continue
        # The sampler holds the interpreter lock when it asks: a thread that runs Python is about to sleep over it.
        letter = ord("S" if state == ASLEEP else "R") if states else 0
        writer.put(
            StackSample, now, now + SAMPLE_CPU_NS, step, phase=phase, stack=writer.stack(frames), cpu_ns=round(cpu),
            late_ns=late, state=letter, delay_known=int(states), eager=int(states and state != HOLDING),
        )  # fmt: skip
        planned = max(planned, now)
