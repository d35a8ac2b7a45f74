"""How much the gradients of single ranks differ from their average: the gradient noise, without a byte communicated."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.capture.source import Source
from rankscope.capture.tensors.tensor_samples import observable, readable
from rankscope.records.numerics import GradientNoise as GradientNoiseRecord
from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

CALLER, ENGINE = 3, "_engine_run_backward"
"""Frames from `_before` to who called the operation (by way of `tell` and the kernel), and what that is of DDP's
reducer, which is C++: torch's way into its autograd engine."""
MOST_BUCKETS: Final = 16
ELEMENTS: Final = 1024
"""Of each bucket that are read: of ten buckets ten thousand, whose mean square is known within 2 %."""


class GradientNoise(Source):
    """Reads some elements of each bucket that DDP reduces, before the reduction and at the end of the backward.

    On sampled steps only, where the bucket lies on the host and no communication hook changes it. Before, it holds
    this rank's gradient; afterwards, in the same memory, the average of all ranks. What Python code reduces within a
    backward (statistics of a norm layer) is none of it.
    """

    name = "gradient-noise"
    emits = (GradientNoiseRecord,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        self._agent = agent
        self._buckets: list[tuple[Any, Any]] = []
        """Views of the elements that are read, and copies of what they held."""
        agent.before_reduction.append(self._before)
        agent.after_close_backward.append(self._after)
        agent.in_child.append(self._buckets.clear)

    def remove(self) -> None:
        agent = self._agent
        agent.before_reduction.remove(self._before)
        agent.after_close_backward.remove(self._after)
        agent.in_child.remove(self._buckets.clear)

    def _before(self, args: Any) -> None:
        tensors = args[0]
        if self._agent.reduces_by_hook or sys._getframe(CALLER).f_code.co_name != ENGINE:
            return
        if type(tensors) is not list or len(tensors) != 1 or len(self._buckets) >= MOST_BUCKETS or not observable():
            return
        bucket = readable(tensors[0])
        if bucket is None or bucket.device.type != "cpu" or not bucket.is_contiguous():
            return
        begin = monotonic_ns()
        few = bucket.detach().view(-1)[:: bucket.numel() // ELEMENTS | 1]
        self._buckets.append((few, few.double()))
        if self._agent.timing:
            self._agent.own_ns += monotonic_ns() - begin

    def _after(self) -> None:
        buckets, self._buckets[:] = list(self._buckets), []
        if not buckets or not observable():
            return
        begin = monotonic_ns()
        agent = self._agent
        local = sum(float(before @ before) for _, before in buckets)
        averaged = sum(float((now := view.double()) @ now) for view, _ in buckets)
        elements = sum(len(before) for _, before in buckets)
        sizes = two_floats(local / elements, averaged / elements)
        agent.put(monotonic_ns(), 0, GradientNoiseRecord.code, 0, agent.step, sizes, elements, len(buckets))
        if agent.timing:
            agent.own_ns += monotonic_ns() - begin
