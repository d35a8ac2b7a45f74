"""Pauses of Python's cyclic garbage collector."""

from __future__ import annotations

import gc
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.capture.source import Source
from rankscope.records.host import GcPause

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

SHORTEST_NS = 300_000
"""Shorter pauses are young collections that cost less than a record is worth."""


class GcPauses(Source):
    """`gc.callbacks`: start and end of each collection on the training thread."""

    name = "gc-pauses"
    emits = (GcPause,)
    stage = "host"

    def install(self, agent: Agent) -> None:
        began = 0

        def callback(when: str, info: dict[str, Any]) -> None:
            nonlocal began
            if when == "start":
                began = monotonic_ns()
                return
            end = monotonic_ns()
            if began and end - began >= SHORTEST_NS and agent.ring is not None and agent.thread == get_ident():
                generation, collected = info.get("generation", 0), info.get("collected", 0)
                agent.put(began, end - began, GcPause.code, 0, agent.step, generation, collected, 0)
            began = 0

        self._callback = callback
        gc.callbacks.append(callback)

    def remove(self) -> None:
        gc.callbacks.remove(self._callback)
