"""The backward pass: each call of torch.autograd.backward and grad."""

from __future__ import annotations

from threading import get_ident
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.patches import Patches
from rankscope.capture.self_cost import WRAPPER_NS
from rankscope.capture.source import Source
from rankscope.records.training import Backward as BackwardRecord

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Backward(Source):
    """Calls of `torch.autograd.backward` (which `Tensor.backward` calls) and `torch.autograd.grad`."""

    name = "backward"
    emits = (BackwardRecord,)
    stage = "backward"

    def install(self, agent: Agent) -> None:
        import torch

        self._patches = Patches()
        phase = agent.name("backward")
        for name in ("backward", "grad"):
            original = getattr(torch.autograd, name)
            self._patches.replace(torch.autograd, name, _timed(original, agent, phase, torch.compiler.is_compiling))

    def remove(self) -> None:
        self._patches.undo()


def _timed(original: Any, agent: Agent, phase: int, is_compiling: Any) -> Any:
    from functools import wraps

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or agent.in_backward or agent.ended:
            return original(*args, **kwargs)
        if agent.thread != get_ident() and not agent.adopt_thread():
            return original(*args, **kwargs)
        t0 = monotonic_ns()
        before, agent.phase = agent.phase, phase
        agent.in_backward = True
        agent.backward_collectives = agent.backward_last_enter = 0
        try:
            site = agent.backward_site = agent.site()
        except Exception as error:  # noqa: BLE001
            swallow("finding a backward's call-site", error)
            site = 0
        cpu = thread_time_ns() if agent.timing else 0
        t1 = monotonic_ns()
        try:
            return original(*args, **kwargs)
        finally:
            t2 = monotonic_ns()
            agent.in_backward = False
            agent.phase = before
            try:
                agent.micro_batches += 1
                used = thread_time_ns() - cpu if cpu else 0
                agent.put(
                    t1, t2 - t1, 3, site, agent.step, agent.backward_last_enter, used, agent.backward_collectives
                )
                agent.own_ns += t1 - t0 + monotonic_ns() - t2 + WRAPPER_NS * agent.slowness
            except Exception as error:  # noqa: BLE001
                swallow("recording a backward", error)

    return call
