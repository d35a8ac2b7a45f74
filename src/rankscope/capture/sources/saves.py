"""Checkpoints: calls that write model or optimizer state to disk."""

from __future__ import annotations

import sys
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard, swallow
from rankscope.capture.boot import after_import
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.training import Span

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Saves(Source):
    """`torch.save`, `torch.distributed.checkpoint.save` and `safetensors.torch.save_file`."""

    name = "saves"
    emits = (Span,)
    stage = "checkpoint"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._patches = Patches()
        self._watch(torch, "save")
        after_import("torch.distributed.checkpoint", lambda: self._watch_module("torch.distributed.checkpoint", "save"))
        after_import("safetensors.torch", lambda: self._watch_module("safetensors.torch", "save_file"))

    def remove(self) -> None:
        self._patches.undo()

    def _watch_module(self, module: str, function: str) -> None:
        if not self._agent.ended:
            with guard(f"observing {module}"):
                self._watch(sys.modules[module], function)

    def _watch(self, owner: Any, function: str) -> None:
        agent = self._agent
        original = getattr(owner, function)
        phase = agent.name("checkpoint")
        detail = agent.name(f"{owner.__name__}.{function}")

        @wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            if agent.ended or agent.ring is None or agent.thread != get_ident():
                return original(*args, **kwargs)
            before, agent.phase = agent.phase, phase
            t1 = monotonic_ns()
            try:
                return original(*args, **kwargs)
            finally:
                t2 = monotonic_ns()
                agent.phase = before
                try:
                    agent.put(t1, t2 - t1, Span.code, phase, agent.step, agent.site() | detail << 16, 0, 0)
                except Exception as error:  # noqa: BLE001
                    swallow("recording a save", error)

        self._patches.replace(owner, function, save)
