"""Finds a rank that makes no progress outside of communication."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class StuckRank(FailureDetector):
    """A rank stands still outside of communication: it waits for a lock, holds the interpreter lock, or is stopped.

    ## What it is
    Two threads hold what the other one wants, or whoever should release it is gone. Or native code sleeps and does not
    give the interpreter lock away. Or SIGSTOP (a shell, a job scheduler) or a debugger has stopped the process.

    ## What shows it
    A line that takes a lock, without CPU time, for longer than the run's rhythm, while its peers wait. Where the
    rank's own sampler is silent, the recorder looks from outside: the process's state, who holds the lock, its stack.

    ## What else looks like it
    Long work (`slow-rank-timeout`), also in native code that holds the lock and computes; a loader whose workers wait
    (`loader-deadlock`).

    ## What to do
    Look at who holds the lock: the stacks of its other threads. A stopped process goes on after `kill -CONT PID`.
    """

    name = "stuck-rank"
    title = "{who} {why}{where}"
    advice = ("look at who holds what it waits for, or who stopped it: `rankscope stacks` shows all ranks",)
