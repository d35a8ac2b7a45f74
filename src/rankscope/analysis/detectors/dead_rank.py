"""Finds the process whose death ended the run."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class DeadRank(FailureDetector):
    """A process was killed or left without an exception; what its peers raised only follows.

    ## What it is
    A signal (the memory killer sends SIGKILL, broken native code SIGSEGV), or a call that ends the process at once.

    ## What shows it
    The first end among the ranks that is neither clean nor asked for by a launcher, with its exit code or signal.

    ## What else looks like it
    A peer that loses its connection and raises (it comes later); an exception of the rank itself (`rank-exception`).

    ## What to do
    Signal 9: look for the memory killer in the kernel's log. Signal 11 or 6: run it with `python -X faulthandler`. An
    exit code: who calls `os._exit` there.
    """

    name = "dead-rank"
    title = "{who} died first: {why}{where}"
    advice = ("look at what it did last; for SIGKILL ask the kernel's log for the memory killer",)
