"""Passes without gradients: in which mode they run, and whether they draw random numbers as dropout does."""

from __future__ import annotations

import sys
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.capture.source import Source
from rankscope.capture.tensors.dropout_code import calls_dropout
from rankscope.capture.tensors.tensor_samples import observable
from rankscope.records.wiring import EvaluationPass

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

FIRST_ROUNDS = 8
"""Rounds (the passes between two steps) that are all looked at; of later ones those whose number is a power of two."""
PASSES = 8
"""Of a round."""
FEW = 64
"""Elements of the first input that tell whether it is the same one again."""
RECALIBRATION = "update_bn"
"""Function of torch.optim.swa_utils that runs a model in training mode on purpose."""


class _Model:
    """What is kept of one model: numbers, no tensors."""

    __slots__ = ("first", "passes", "repeated", "round", "step", "total")

    def __init__(self) -> None:
        self.step = self.round = -1
        self.passes = self.total = self.repeated = 0
        self.first: tuple[Any, ...] = ()
        """The beginning of the last input."""


class Evaluations(Source):
    """Calls of root modules without gradients: the first ones after a step, of few steps.

    Whether random numbers were drawn is told from the state of the generators, which is only read.
    """

    name = "evaluations"
    emits = (EvaluationPass,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        self._agent = agent
        self._forget()
        agent.before_evaluation.append(self._before)
        agent.after_evaluation.append(self._after)
        agent.in_child.append(self._forget)

    def remove(self) -> None:
        self._agent.before_evaluation.remove(self._before)
        self._agent.after_evaluation.remove(self._after)
        self._agent.in_child.remove(self._forget)

    def _forget(self) -> None:
        self._models: dict[int, _Model] = {}
        self._state: Any = None
        """Of the random generators before the pass that is looked at; None: none is."""

    def _before(self, module: Any, name: int, args: Any, kwargs: Any) -> None:
        agent = self._agent
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model()
        model.total += 1
        if model.step != agent.step:
            model.step = agent.step
            model.round += 1
            model.passes = model.repeated = 0
            model.first = ()
        model.passes += 1
        self._state = None
        if model.passes > PASSES or (model.round >= FIRST_ROUNDS and model.round & (model.round - 1)):
            return
        if agent.config.level == "light" or agent.thread != get_ident() or agent.ring is None or not observable():
            return
        begin = monotonic_ns()
        first = _beginning(args, kwargs)
        model.repeated = model.repeated + 1 if first and first == model.first else 0
        model.first = first
        self._state = _generators()
        if agent.timing:
            agent.own_ns += monotonic_ns() - begin

    def _after(self, module: Any, name: int) -> None:
        state, self._state = self._state, None
        if state is None:
            return
        agent = self._agent
        begin = monotonic_ns()
        random = _differ(state, _generators())
        model = self._models[name]
        site = agent.site(2)
        if not _recalibrates():
            dropouts, norms = _in_training(module)
            code = calls_dropout(module) if random and not module.training else ""
            flags = (
                name | bool(module.training) << 16 | random << 17 | bool(code) << 18 | min(model.repeated, 255) << 24
            )  # fmt: skip
            agent.put(
                begin, 0, EvaluationPass.code, agent.name(code) if code else 0, agent.step,
                site | min(model.total - 1, (1 << 31) - 1) << 32, min(dropouts, 65535) | min(norms, 65535) << 16, flags,
            )  # fmt: skip
        if agent.timing:
            agent.own_ns += monotonic_ns() - begin


def _in_training(module: Any) -> tuple[int, int]:
    """(dropout modules that drop, modules that normalise by the batch and remember) in training mode."""
    import torch

    dropout, norm = torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm
    inside = [one for one in module.modules() if one.training]
    dropouts = sum(isinstance(one, dropout) and one.p > 0 for one in inside)
    return dropouts, sum(isinstance(one, norm) and one.track_running_stats for one in inside)


def _generators() -> tuple[Any, ...]:
    """The states of the generators, read without waiting for a device."""
    import torch

    cuda = torch.cuda
    offsets = [g.get_offset() for g in cuda.default_generators] if cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return torch.default_generator.get_state(), offsets


def _differ(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    import torch

    return before[1] != after[1] or not torch.equal(before[0], after[0])


def _beginning(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Shape and first numbers of the first tensor among the arguments; () where none can be read without waiting."""
    import torch

    for value in (*args, *kwargs.values()):
        if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided:
            few = torch.as_strided(value.detach(), (min(FEW, value.numel()),), (1,), value.storage_offset()) if (
                value.is_contiguous()
            ) else value.detach()[:1].reshape(-1)[:FEW]  # fmt: skip
            return tuple(value.shape), tuple(few.tolist())
    return ()


def _recalibrates() -> bool:
    frame = sys._getframe(3)
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code.co_name == RECALIBRATION:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
