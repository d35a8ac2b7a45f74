"""Checkpoints that come back: files that are read, and the states that models, optimizers and schedules take over."""

from __future__ import annotations

import os
import sys
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import guard, swallow
from rankscope.capture.boot import after_import
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.training import Call

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MOST: Final = 5000
"""Calls of a process that are written: target networks take over a state again and again."""


class Restores(Source):
    """`torch.load` and `torch.save` with the path, and `load_state_dict` of modules, optimizers and schedulers."""

    name = "restores"
    emits = (Call,)
    stage = "checkpoint"

    def install(self, agent: Agent) -> None:
        import torch
        from torch.optim import lr_scheduler

        self._agent = agent
        self._patches = Patches()
        self._inside = False
        self._written = 0
        self._watch_file(torch, "load")
        self._watch_file(torch, "save")
        self._watch(torch.nn.Module, "load_state_dict", "Module.load_state_dict")
        self._watch(torch.optim.Optimizer, "load_state_dict", "Optimizer.load_state_dict")
        for kind in list(vars(lr_scheduler).values()):
            ours = isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler)
            if ours and "load_state_dict" in vars(kind):
                self._watch(kind, "load_state_dict", "LRScheduler.load_state_dict")
        module = "torch.distributed.checkpoint"
        after_import(module, lambda: self._watch_module(module))

    def remove(self) -> None:
        self._patches.undo()

    def _watch_module(self, module: str) -> None:
        if not self._agent.ended:
            with guard(f"observing {module}"):
                self._watch(sys.modules[module], "load", f"{module}.load")

    def _watch(self, owner: Any, function: str, called: str) -> None:
        original = getattr(owner, function)
        name = self._agent.name(called)

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or not self._seen():
                return original(*args, **kwargs)
            self._inside = True  # a scheduler of several loads each of them
            begin = monotonic_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False
                self._write(name, begin)

        self._patches.replace(owner, function, call)

    def _watch_file(self, torch: Any, function: str) -> None:
        original = getattr(torch, function)
        at = 0 if function == "load" else 1

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or not self._seen():
                return original(*args, **kwargs)
            begin = monotonic_ns()
            found = original(*args, **kwargs)
            with guard("noting a checkpoint"):
                path = _path(args[at] if len(args) > at else kwargs.get("f"))
                held = found if function == "load" else (args[0] if args else kwargs.get("obj"))
                optimizer = " with optimizer" if _holds_optimizer(held) else ""
                self._write(self._agent.name(f"torch.{function} {path}{optimizer}"), begin)
            return found

        self._patches.replace(torch, function, call)

    def _seen(self) -> bool:
        agent = self._agent
        return not agent.ended and agent.role == "rank" and agent.thread == get_ident() and self._written < MOST

    def _write(self, name: int, begin: int) -> None:
        agent = self._agent
        self._written += 1
        try:
            agent.put(begin, monotonic_ns() - begin, Call.code, name, agent.step, agent.site(), 1, 0)
        except Exception as error:  # noqa: BLE001
            swallow("recording a restore", error)


def _path(file: Any) -> str:
    """Where a checkpoint lies; `memory` for a buffer."""
    if isinstance(file, (str, os.PathLike)):
        return os.path.abspath(os.fspath(file))[-200:] if isinstance(os.fspath(file), str) else "memory"
    name = getattr(file, "name", None)
    return os.path.abspath(name)[-200:] if isinstance(name, str) else "memory"


def _holds_optimizer(state: Any) -> bool:
    return type(state) is dict and any(type(key) is str and "optim" in key.lower() for key in state)
