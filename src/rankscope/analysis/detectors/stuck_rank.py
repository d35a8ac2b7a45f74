"""Finds a rank that makes no progress outside of communication."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.failure_finding import found
from rankscope.base.finding import Finding

TITLE = "{who} {why}{where}"
ADVICE = ("look at who holds what it waits for, or who stopped it: `rankscope stacks` shows all ranks",)


class StuckRank(Detector):
    """A rank stands still outside of communication: it waits for a lock, holds the interpreter lock, or is stopped.

    ## What it is
    Two threads hold what the other one wants, or whoever should release it is gone. Or native code sleeps and does not
    give the interpreter lock away. Or SIGSTOP (a shell, a job scheduler) or a debugger has stopped the process.

    ## What shows it
    The same stack in `threading`, without CPU time, for longer than the run's rhythm, while its peers wait. Where the
    rank's own sampler is silent, the recorder looks from outside: the process's state, who holds the lock, its stack.

    ## What else looks like it
    Long work (`slow-rank-timeout`), also in native code that holds the lock and computes; a loader whose workers wait
    (`loader-deadlock`).

    ## What to do
    Look at who holds the lock: the stacks of its other threads. A stopped process goes on after `kill -CONT PID`.
    """

    name = "stuck-rank"
    needs = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        yield from found(facts, self.name, TITLE, ADVICE)
