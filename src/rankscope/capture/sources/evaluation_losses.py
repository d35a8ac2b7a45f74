"""Losses that the program computes without gradients: what an evaluation says of the model."""

from __future__ import annotations

from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import swallow
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.capture.tensors.tensor_samples import observable, readable
from rankscope.records.activations import EvaluationLoss
from rankscope.records.record import float_bits

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

LOSSES: Final = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "gaussian_nll_loss", "poisson_nll_loss", "multi_margin_loss",
)  # fmt: skip
MOST: Final = 1 << 16
"""Values of a process that are written: an evaluation that never ends must not fill the store."""


class EvaluationLosses(Source):
    """Stand-ins for loss functions in `torch.nn.functional`, which torch's loss modules call too.

    They do nothing where autograd is on. Compiled code never sees them: while dynamo traces, the original is called;
    `torch.jit.script` is given it.
    """

    name = "evaluation-losses"
    emits = (EvaluationLoss,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        from torch.nn import functional

        self._agent = agent
        self._patches = Patches()
        self._written = 0
        for name in LOSSES:
            original = getattr(functional, name, None)
            if original is not None:
                self._patches.replace(functional, name, self._watched(name, original))

    def remove(self) -> None:
        self._patches.undo()

    def _watched(self, name: str, original: Any) -> Any:
        import torch

        is_dynamo_compiling = torch.compiler.is_dynamo_compiling
        is_grad_enabled = torch.is_grad_enabled
        write = self._write

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The first test is a constant for dynamo, which therefore never sees what follows.
            if is_dynamo_compiling():
                return original(*args, **kwargs)
            value = original(*args, **kwargs)
            if not is_grad_enabled():
                write(name, value)
            return value

        call.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]  # what torch.jit.script compiles
        return call

    def _write(self, function: str, value: Any) -> None:
        agent = self._agent
        if agent.thread != get_ident() or agent.ended or agent.ring is None or self._written >= MOST:
            return
        if agent.config.level == "light":
            return
        try:
            begin = monotonic_ns()
            tensor = readable(value) if observable() else None
            if tensor is None or tensor.numel() != 1 or tensor.device.type != "cpu":
                return
            self._written += 1
            number = float_bits(float(tensor))
            site, name = agent.site(2), agent.name(function)
            agent.put(begin, 0, EvaluationLoss.code, site, agent.step, number, 0, name)
            if agent.timing:
                agent.own_ns += monotonic_ns() - begin
        except Exception as error:  # noqa: BLE001
            swallow("reading an evaluation loss", error)
