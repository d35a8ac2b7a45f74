"""Where each rank stands when nothing goes on any more: since when, in which line, and for whom it waits."""

from __future__ import annotations

from collections import Counter as Counted
from dataclasses import dataclass, replace

import numpy as np

from rankscope.analysis.ends import End, ends
from rankscope.analysis.facts import Facts
from rankscope.analysis.outside_stacks import OutsideLook, last_look
from rankscope.analysis.sample_state import BLOCKED, states_of
from rankscope.analysis.source_order import takes_lock
from rankscope.analysis.stacks import Place, Samples, Stack, read_samples
from rankscope.analysis.tables import column
from rankscope.records.host import NO_PROGRESS, SILENT_NS, Counter, StackSample
from rankscope.records.kinds import KINDS

STALLED_NS = 4_000_000_000
"""A rank without progress for less is not called stuck, however short its steps. (A recorder looks after 5.5 s, and
what it sees is a second old by then.)"""
STALLED_STEPS = 10.0
"""Nor for less than so many of the run's typical steps."""
LONG_START_NS = 30_000_000_000
"""A rank that prepares its first step for less, while nobody waits for it, is not told of."""
RECENT = 40
"""Samples from the end that say where a rank stands: two to eight seconds of them."""
WAITS = ("/torch/distributed/",)
"""Files of torch in which a rank waits for its peers."""
BACKWARD = "_engine_run_backward"
"""The entry of torch's autograd engine: in it DDP waits for its reductions, in C++."""
UNWATCHED_NS = 3_000_000_000
"""Readings of a process come twice a second; where none came for so long, the recorder or the machine stood still."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One process without progress."""

    pid: int
    since_ns: int
    until_ns: int
    """When it ended, or was seen last."""
    stack: Stack | None
    """Its most frequent stack at the end; None where it could not be sampled."""
    blocked: bool
    """It did not run."""
    stopped: bool = False
    """SIGSTOP or a debugger holds it."""
    holds_lock: bool = False
    """It holds the interpreter lock in native code: none of its other threads could run."""
    unwatched_ns: int = 0
    """Of that time the recorder did not run either (a machine that slept, a job that was stopped as a whole)."""
    why_no_stack: str = ""

    @property
    def ns(self) -> int:
        """How long nothing has gone on."""
        return max(0, self.until_ns - self.since_ns - self.unwatched_ns)

    @property
    def place(self) -> Place | None:
        """Its innermost line of the user's."""
        return self.stack.user[-1] if self.stack is not None and self.stack.user else None

    @property
    def waits(self) -> bool:
        """Whether it waits for its peers in communication."""
        if self.stack is None or not self.blocked or self.stopped:
            return False
        leaf = self.stack.frames[-1].function if self.stack.frames else ""
        return leaf == BACKWARD or any(part in frame.file for frame in self.stack.frames for part in WAITS)

    @property
    def loads(self) -> bool:
        """Whether it waits for its loader's workers."""
        return self.stack is not None and any(
            frame.file.endswith("/torch/utils/data/dataloader.py") for frame in self.stack.frames
        )

    @property
    def locked(self) -> bool:
        """Whether it waits for a lock of its own program: the line that it is in takes one.

        What waits for another thread's work (`join`, a future, an event) looks the same and is no fault.
        """
        if self.stack is None or not self.blocked or not self.stack.frames:
            return False
        # Only the innermost line counts: below it, a forked worker has the frames of its parent's loader.
        leaf = self.stack.frames[-1]
        return leaf == self.place and takes_lock(leaf)


def silent(facts: Facts, position: int) -> bool:
    """Whether a rank that is still there had not been sampled for long when it was seen last."""
    pid = facts.ranks[position].pid
    samples = facts.tables.of(StackSample)
    mine = samples["time_ns"][samples["process"] == pid]
    last = int(mine.max()) if len(mine) else 0
    return end_of(facts, position) is None and _seen_last(facts, pid) - last > SILENT_NS


def end_of(facts: Facts, position: int) -> End | None:
    """How a rank ended; None while it runs."""
    return next((end for end in ends(facts) if end.position == position), None)


def standing(facts: Facts, position: int) -> Standing:
    """Where a rank stands at its end, or now."""
    return facts.once(_standing, position)


def _standing(facts: Facts, position: int) -> Standing:
    end = end_of(facts, position)
    return process_standing(facts, facts.ranks[position].pid, end.time_ns if end is not None else None)


def process_standing(facts: Facts, pid: int, until_ns: int | None = None) -> Standing:
    """The same of any process of the run, a loader worker for example."""
    process = facts.tables.processes.get(pid)
    since = process.started_ns if process is not None else 0
    for kind in KINDS.values():
        if kind in NO_PROGRESS:
            continue
        rows = facts.tables.of(kind)
        rows = rows[rows["process"] == pid]
        if len(rows):
            since = max(since, int((rows["time_ns"] + rows["duration_ns"]).max()))
    until = until_ns if until_ns is not None else max(since, _seen_last(facts, pid))
    samples = read_samples(facts.tables, pid)
    unwatched = _unwatched_ns(facts, pid, since, until)
    recent = [i for i in range(max(0, len(samples) - RECENT), len(samples)) if samples.time_ns[i] > since]
    stack = Counted(samples.stack[i] for i in recent).most_common(1)[0][0] if recent else None
    look = last_look(facts.tables, pid)
    if look is not None and look.time_ns > max([since, *samples.time_ns[-1:].tolist()]):
        return _from_outside(Standing(pid, since, until, stack, blocked=False, unwatched_ns=unwatched), look)
    if not recent:
        return Standing(pid, since, until, None, blocked=False, unwatched_ns=unwatched)
    state = states_of(facts.tables, pid, samples).state[recent]
    blocked = float((state == BLOCKED).mean()) > 0.5 or _idle(samples, recent)
    return Standing(pid, since, until, stack, blocked, unwatched_ns=unwatched)


def _from_outside(inside: Standing, look: OutsideLook) -> Standing:
    """Where the process's own sampler has fallen silent."""
    return replace(
        inside,
        stack=look.stack or inside.stack,
        blocked=not look.runs,
        stopped=look.stopped,
        # Python code gives the lock to a sampler that asks for it; a thread that sleeps runs no Python code.
        holds_lock=look.holds_lock and not look.stopped and (look.sampled or not look.runs),
        why_no_stack=look.why_no_stack,
    )


def _unwatched_ns(facts: Facts, pid: int, since: int, until: int) -> int:
    """Time without a reading of a process that the recorder looks at twice a second."""
    counters = facts.tables.of(Counter)
    times = np.unique(counters["time_ns"][column(counters, Counter, "of") == pid].astype(np.int64))
    gone = np.diff(times) > UNWATCHED_NS
    overlaps = np.minimum(times[1:][gone], until) - np.maximum(times[:-1][gone], since)
    return int(overlaps[overlaps > 0].sum())


def _idle(samples: Samples, recent: list[int]) -> bool:
    """Whether the thread used hardly any CPU time between its last samples."""
    first, last = recent[0], recent[-1]
    passed = int(samples.time_ns[last] - samples.time_ns[first])
    return passed > 0 and float(samples.cpu_ns[first + 1 : last + 1].sum()) < 0.05 * passed


def _seen_last(facts: Facts, pid: int) -> int:
    counters = facts.tables.of(Counter)
    mine = counters[column(counters, Counter, "of") == pid]
    samples = facts.tables.of(StackSample)
    own = samples[samples["process"] == pid]
    return max((int(rows["time_ns"].max()) for rows in (mine, own) if len(rows)), default=0)


def limit_ns(facts: Facts) -> float:
    """How long a rank must be without progress to be called stalled, by the run's own rhythm."""
    typical = float(np.median(facts.step_ns)) if facts.enough else 0.0
    return max(STALLED_NS, STALLED_STEPS * typical)


def stalled(facts: Facts) -> tuple[int, ...]:
    """Positions of the ranks that were without progress, at a forced end or now, for longer than the run's rhythm."""
    limit = limit_ns(facts)
    return tuple(p for p in range(facts.size) if standing(facts, p).ns >= limit and not ended_well(facts, p))


def hangs(facts: Facts) -> bool:
    """Whether no rank that is still there makes progress."""
    there = [p for p in range(facts.size) if end_of(facts, p) is None]
    return bool(there) and set(there) <= set(stalled(facts))


def worth_telling(facts: Facts) -> bool:
    """Whether ranks that are still there are without progress, and a user should know.

    Before the first step programs load and prepare; that is told where others wait for it, or when it takes long.
    """
    still = [p for p in stalled(facts) if end_of(facts, p) is None]
    if not still:
        return False
    started = any(facts.step_count(p) for p in range(facts.size))
    longest = max(standing(facts, p).ns for p in still)
    return started or longest >= LONG_START_NS or any(standing(facts, p).waits for p in still)


def ended_well(facts: Facts, position: int) -> bool:
    """Whether a rank has come to the end of its program."""
    end = end_of(facts, position)
    return end is not None and not end.failed


def left_waiting(facts: Facts, position: int) -> bool:
    """Whether a rank waits for its peers, did so when it was ended, or raised because it was left alone."""
    end = end_of(facts, position)
    if end is not None and end.exception and end.follows and not end.exception.startswith("KeyboardInterrupt"):
        return True
    return not ended_well(facts, position) and standing(facts, position).waits
