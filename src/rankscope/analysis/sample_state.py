"""What a thread did at each stack sample: blocked, in Python, or in native code."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stacks import Samples, Stack
from rankscope.analysis.tables import Tables, column
from rankscope.records.host import EAGER_NS, StackSample

BLOCKED = 0
"""Not on a CPU: asleep, or waiting for a lock, a file or a server."""
PYTHON = 1
"""Runs Python code and holds the interpreter lock."""
NATIVE = 2
"""Runs anything else: torch's operators, numpy, a library."""

BLOCKED_BELOW = 0.3
"""CPU time over wall time around a sample, below which the thread was blocked; asked where the kernel did not say."""
PYTHON_LATE_NS = 1_500_000
"""The sampler had to wait so long for the interpreter lock: the thread ran Python code (torch's operators release it,
and without waiting a sample comes 0.1-0.2 ms after its time)."""
EAGER_LATE_NS = EAGER_NS + 80_000
"""The same where the sampler asks for the lock: after that and the timer's slack of 50 µs at the earliest."""
HOOK_CALLERS = ("torch/autograd/graph.py", "torch/nn/modules/module.py", "torch/optim/optimizer.py")
"""Where torch calls hooks from: the engine's entry (tensor hooks come from C++ below it), modules, optimizers."""


@dataclass(frozen=True, slots=True)
class States:
    """What each of a process's samples found; one entry a sample."""

    state: NDArray[np.int64]
    """BLOCKED, PYTHON or NATIVE."""
    hook: NDArray[np.bool_]
    """User code that torch called: a hook or a callback, not a module's forward."""


def states_of(tables: Tables, pid: int, samples: Samples) -> States:
    """The state of each of a process's samples."""
    rows = tables.of(StackSample)
    rows = rows[rows["process"] == pid]
    late = column(rows, StackSample, "late_ns").astype(np.int64)
    share = samples.cpu_ns / np.maximum(samples.weight_ns, 1)
    state = np.full(len(samples), NATIVE, np.int64)
    in_python = np.array([not s.ends_in_torch for s in samples.stack], bool)
    letter = column(rows, StackSample, "state").astype(np.int64)
    # Where it is not known how long the sampler waited for a CPU: it holds the interpreter lock now, and a thread that
    # runs all the same does not need it, so that it was a CPU that the sampler waited for.
    known = column(rows, StackSample, "delay_known") > 0
    limit = np.where(column(rows, StackSample, "eager") > 0, EAGER_LATE_NS, PYTHON_LATE_NS)
    limit = np.where((letter == 0) & ~known, _without_lock_ns(late[~in_python]), limit)
    waited = (late >= limit) & (known | (letter != ord("R")))
    state[waited & in_python] = PYTHON
    asleep = np.isin(letter, [ord(x) for x in "SD"]) & ~waited
    following = np.append(share[1:], share[-1:]) if len(share) else share
    unknown = (letter == 0) & (np.minimum(share, following) < BLOCKED_BELOW) & ~waited
    state[asleep | unknown] = BLOCKED
    return States(state, np.array([is_hook(s) for s in samples.stack], bool))


def _without_lock_ns(late: NDArray[np.int64]) -> float:
    """How late a sample must be to have waited for the interpreter: on a crowded machine the sampler also waits for a
    CPU, and shows how long while the thread is in torch, which holds no lock."""
    return max(PYTHON_LATE_NS, float(np.percentile(late, 90))) if len(late) >= 10 else PYTHON_LATE_NS


@lru_cache(maxsize=65536)
def is_hook(stack: Stack) -> bool:
    """Whether torch called user code that is neither a module's forward nor a decorated function: a hook."""
    frames = stack.frames
    for before, frame in itertools.pairwise(frames):
        if stack.is_user(frame) and before.file.endswith(HOOK_CALLERS):
            name = frame.function.rpartition(".")[2]
            if name != "forward" and before.function.rpartition(".")[2] not in ("apply", "_apply"):
                return True
    return False
