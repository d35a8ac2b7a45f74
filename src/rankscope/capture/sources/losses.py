"""The loss of each backward call: the number that it is called on."""

from __future__ import annotations

from math import isfinite
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.capture.listeners import tell
from rankscope.capture.source import Source
from rankscope.records.numerics import LossValue
from rankscope.records.record import float_bits

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Losses(Source):
    """Reads the tensor of one element that backward is called on, where that waits for no device."""

    name = "losses"
    emits = (LossValue,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._tensor = torch.Tensor
        self._modes = torch._C._len_torch_dispatch_stack
        agent.before_backward.append(self._before)

    def remove(self) -> None:
        self._agent.before_backward.remove(self._before)

    def _before(self, root: Any, site: int) -> None:
        agent = self._agent
        # What is asked of a tensor here is asked in each step, from cold caches.
        if type(root) is not self._tensor or not root.is_cpu or root.numel() != 1:
            return
        if self._modes():
            return  # the program's own mode would see that it is read
        value = root.item()
        if type(value) is not float:
            return
        micro = agent.micro_batches & 0xFFFF
        agent.put(monotonic_ns(), 0, LossValue.code, site, agent.step, float_bits(value), 0, micro)
        if not isfinite(value):
            tell(agent.on_lost_loss, "looking at a lost loss", root, site)
