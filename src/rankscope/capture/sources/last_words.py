"""What a process says before an end that runs no exit handler, and errors that it catches and only tells of."""

from __future__ import annotations

import faulthandler
import os
import traceback
from functools import wraps
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.host import CaughtException, LastCall

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class LastWords(Source):
    """`os._exit` and `os.abort` say where they were called; a fatal signal leaves Python's own stack in a file.

    An exception that is formatted (logged, printed) has been caught: it is written with the line that raised it.
    """

    name = "last-words"
    emits = (LastCall, CaughtException)

    def install(self, agent: Agent) -> None:
        self._agent = agent
        self._patches = Patches()
        self._faults: Any = None
        for name in ("_exit", "abort"):
            self._patches.replace(os, name, self._leaving(name, getattr(os, name)))
        original = traceback.TracebackException.__init__
        self._patches.replace(traceback.TracebackException, "__init__", self._formatting(original))
        agent.on_open.append(self._catch_signals)
        agent.in_child.append(self._let_go)
        if agent.ring is not None:
            self._catch_signals()

    def remove(self) -> None:
        self._patches.undo()
        self._agent.on_open.remove(self._catch_signals)
        self._agent.in_child.remove(self._let_go)
        self._let_go()

    def _let_go(self) -> None:
        """In a forked child: what it dies of is not to stand in its parent's file."""
        if self._faults is not None:
            faulthandler.disable()
            self._faults.close()
            self._faults = None

    def _catch_signals(self) -> None:
        """Python's fault handler, where the user has not turned it on: C code that runs on a fatal signal only."""
        ring = self._agent.ring
        if faulthandler.is_enabled() or ring is None:
            return
        with guard("turning on the fault handler"):
            self._faults = ring.path.with_suffix(".fault").open("wb", buffering=0)
            faulthandler.enable(self._faults, all_threads=False)

    def _leaving(self, name: str, original: Any) -> Any:
        agent = self._agent

        @wraps(original)
        def leave(*args: Any) -> Any:
            with guard("noting the end"):
                if agent.ring is not None and not agent.ended:
                    status = int(args[0]) if args else 0
                    put = agent.thread_put()
                    put(monotonic_ns(), 0, LastCall.code, agent.name(f"os.{name}"), agent.step, agent.site(), status, 0)
            return original(*args)

        return leave

    def _formatting(self, original: Any) -> Any:
        agent = self._agent

        @wraps(original)
        def __init__(this: Any, kind: Any, error: Any, trace: Any, *args: Any, **kwargs: Any) -> None:
            original(this, kind, error, trace, *args, **kwargs)
            with guard("noting an exception"):
                if isinstance(error, Exception) and error.__traceback__ is not None:
                    agent.caught(error)

        return __init__
