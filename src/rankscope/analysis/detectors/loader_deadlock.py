"""Finds loader workers that wait for a lock for ever."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class LoaderDeadlock(FailureDetector):
    """A worker of the DataLoader waits for something that nobody in its process will release.

    ## What it is
    The worker was forked while another thread held a lock; in the child that thread does not exist.

    ## What shows it
    The worker's stack stands in the user's code without CPU time, while the rank waits for its batch.

    ## What else looks like it
    A slow storage: its worker waits too, but gets on.

    ## What to do
    Start workers with `multiprocessing_context="spawn"` or `forkserver`, or make the lock in the worker.
    """

    name = "loader-deadlock"
    title = "{who}: {why}{where}"
    advice = ("start workers by spawn or forkserver (multiprocessing_context), or create the lock in the worker",)
