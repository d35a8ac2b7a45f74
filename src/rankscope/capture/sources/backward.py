"""The backward pass: each call of torch.autograd.backward and grad."""

from __future__ import annotations

from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.listeners import tell
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.training import Backward as BackwardRecord

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

DOING = "looking at a backward"


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
            timed = _timed(original, agent, phase, torch.compiler.is_dynamo_compiling)
            self._patches.replace(torch.autograd, name, timed)

    def remove(self) -> None:
        self._patches.undo()


def _root(roots: Any) -> Any:
    """The tensor that backward is called on; several of them as they are."""
    return roots[0] if type(roots) in (tuple, list) and len(roots) == 1 else roots


def _timed(original: Any, agent: Agent, phase: int, is_compiling: Any) -> Any:
    from functools import wraps

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or agent.in_backward or agent.ended:
            return original(*args, **kwargs)
        if agent.thread != get_ident() and not agent.adopt_thread():
            return original(*args, **kwargs)
        timing = agent.timing
        t0 = monotonic_ns() if timing else 0
        before, agent.phase = agent.phase, phase
        agent.in_backward = True
        agent.backward_collectives = agent.backward_last_enter = 0
        try:
            site = agent.backward_site = agent.site()
        except Exception as error:  # noqa: BLE001
            swallow("finding a backward's call-site", error)
            site = 0
        root = _root(args[0] if args else kwargs.get("tensors"))
        tell(agent.before_backward, DOING, root, site)
        close = agent.sampled or agent.micro_batches >= agent.unusual
        if close:
            tell(agent.before_close_backward, DOING, root, site)
        t1 = monotonic_ns()
        try:
            return original(*args, **kwargs)
        finally:
            t2 = monotonic_ns()
            if agent.after_backward:
                tell(agent.after_backward, DOING)
            if close:
                tell(agent.after_close_backward, DOING)
            agent.in_backward = False
            agent.phase = before
            try:
                agent.micro_batches += 1
                last, count = agent.backward_last_enter, agent.backward_collectives
                agent.put(t1, t2 - t1, BackwardRecord.code, site, agent.step, last, 0, count)
                if timing:
                    agent.own_ns += t1 - t0 + monotonic_ns() - t2
                    agent.hidden_ns += agent.wrapper_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a backward", error)

    return call
