"""Calls whose order and number matter: no_sync, the epoch of a sampler."""

from __future__ import annotations

import sys
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.training import Call

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Calls(Source):
    """`DistributedDataParallel.no_sync` and `DistributedSampler.set_epoch`."""

    name = "calls"
    emits = (Call,)

    def install(self, agent: Agent) -> None:
        from torch.utils.data.distributed import DistributedSampler

        self._agent = agent
        self._patches = Patches()
        ddp: Any = sys.modules.get("torch.nn.parallel.distributed")
        if ddp is not None:
            self._watch(ddp.DistributedDataParallel, "no_sync")
        self._watch(DistributedSampler, "set_epoch")

    def remove(self) -> None:
        self._patches.undo()

    def _watch(self, owner: Any, function: str) -> None:
        agent = self._agent
        original = getattr(owner, function)
        name = agent.name(f"{owner.__name__}.{function}")

        is_compiling = sys.modules["torch"].compiler.is_compiling

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and not agent.ended and agent.ring is not None and agent.thread == get_ident():
                try:
                    agent.put(monotonic_ns(), 0, Call.code, name, agent.step, agent.site(), 1, 0)
                except Exception as error:  # noqa: BLE001
                    swallow("recording a call", error)
            return original(*args, **kwargs)

        self._patches.replace(owner, function, call)
