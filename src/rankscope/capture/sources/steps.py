"""Optimizer steps, and the steps of the run that they end."""

from __future__ import annotations

import weakref
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.listeners import tell
from rankscope.capture.optimizers import learning_rate
from rankscope.capture.source import Source
from rankscope.records.record import float_bits
from rankscope.records.training import OptimizerStep, Step

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


DOING = "looking at an optimizer's step"


class Steps(Source):
    """Optimizer steps through torch's global optimizer hooks; the optimizer that stepped first ends the run's steps.

    With several optimizers (a GAN) the others step inside a step. When the first one is given up (a second training
    follows in the same script), another takes its place: at once where the first one does not exist any more, else
    after 20 steps of its own and twice as many as ever stood between two steps of the first.
    """

    name = "steps"
    emits = (OptimizerStep, Step)

    def install(self, agent: Agent) -> None:
        import torch
        from torch.optim import optimizer

        self._agent = agent
        self._phase = agent.name("optimizer")
        self._is_compiling = torch.compiler.is_dynamo_compiling
        self._began: dict[int, tuple[int, int]] = {}
        self._forget()
        agent.in_child.append(self._forget)
        self._hooks: list[Any] = [
            optimizer.register_optimizer_step_pre_hook(self._before),
            optimizer.register_optimizer_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._agent.in_child.remove(self._forget)

    def _forget(self) -> None:
        self._numbers: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._count = 0
        self._began.clear()
        self._closing = self._others = self._most_others = 0

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_compiling():
            return
        try:
            agent = self._agent
            if agent.thread != get_ident() and not agent.adopt_thread():
                return
            agent.optimizer_steps += 1
            agent.unusual = max(agent.unusual, 2 * agent.micro_batches)
            if agent.before_optimizer:
                tell(agent.before_optimizer, DOING, optimizer)
            if agent.sampled:
                tell(agent.before_sampled_optimizer, DOING, optimizer)
            before, agent.phase = agent.phase, self._phase
            # By optimizer: one may step inside another one's step, and a step that raises never comes to `_after`.
            self._began[id(optimizer)] = (monotonic_ns(), before)
        except Exception as error:  # noqa: BLE001
            swallow("an optimizer step begins", error)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_compiling():
            return
        try:
            end = monotonic_ns()
            agent = self._agent
            started = self._began.pop(id(optimizer), None)
            if started is None or agent.ended or agent.thread != get_ident():
                return
            began, agent.phase = started
            if agent.ring is None:
                agent.open()
            known = self._numbers.get(id(optimizer))
            if known is None or known[0]() is not optimizer:
                known = self._new(optimizer)
            _, number, name = known
            rate = float_bits(learning_rate(optimizer))
            agent.put(began, end - began, OptimizerStep.code, name, agent.step, number, rate, 0)
            if agent.after_optimizer:
                tell(agent.after_optimizer, DOING, optimizer)
            if agent.sampled:
                tell(agent.after_sampled_optimizer, DOING, optimizer)
            # With a single optimizer there is nothing to decide.
            if (self._count == 1 or self._closes(number)) and not agent.explicit_steps:
                agent.end_step(end)
            if agent.timing:  # of the step that has just begun
                agent.own_ns += monotonic_ns() - end
                agent.hidden_ns += 2 * agent.wrapper_ns
                agent.hooks += 1
        except Exception as error:  # noqa: BLE001
            swallow("an optimizer step ends", error)

    def _new(self, optimizer: Any) -> tuple[weakref.ref[Any], int, int]:
        agent = self._agent
        self._count += 1
        number = agent.optimizers.number(optimizer)
        entry = (weakref.ref(optimizer), number, agent.name(type(optimizer).__name__))
        self._numbers[id(optimizer)] = entry
        self._closing = self._closing or number
        agent.wake = 0  # what looks at steps closely begins anew
        agent.parameters += sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        agent.describe()
        return entry

    def _closes(self, number: int) -> bool:
        """Whether a step of this optimizer ends a step of the run."""
        if self._closing != number and not self._agent.optimizers.exists(self._closing):
            self._closing, self._most_others = number, 0  # a new optimizer for the same training
        if self._closing in (0, number):
            self._closing = number
            self._most_others = max(self._most_others, self._others)
            self._others = 0
            return True
        self._others += 1
        if self._others > max(20, 2 * self._most_others):
            self._closing, self._others, self._most_others = number, 0, 0
            return True
        return False
