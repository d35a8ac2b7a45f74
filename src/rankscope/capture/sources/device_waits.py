"""Reads of device values: where the host waits until the device has done all that was asked of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.host import DeviceWait

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")


class DeviceWaits(Source):
    """Methods of `torch.Tensor` that copy a value to the host, on tensors of a CUDA device.

    Only in a torch built for CUDA: on a CPU a read waits for nothing. Asking whether there is a device would create a
    context and break later forks, so the tensor itself is asked at each call.
    """

    name = "device-waits"
    emits = (DeviceWait,)
    stage = "host"

    def install(self, agent: Agent) -> None:
        import torch

        self._patches = Patches()
        if torch.version.cuda is None and torch.version.hip is None:
            return
        is_compiling = torch.compiler.is_compiling
        for name in READS:
            original = getattr(torch.Tensor, name)
            self._patches.replace(torch.Tensor, name, timed(original, agent, _on_device, is_compiling))
        self._patches.replace(
            torch.cuda, "synchronize", timed(torch.cuda.synchronize, agent, lambda *_: True, is_compiling)
        )

    def remove(self) -> None:
        self._patches.undo()


def _on_device(tensor: Any = None, *_: Any) -> bool:
    return getattr(tensor, "is_cuda", False) is True


def timed(
    original: Any, agent: Agent, applies: Callable[..., bool], is_compiling: Callable[[], bool]
) -> Callable[..., Any]:
    """`original`, recorded as a wait where `applies(*args)` and the training thread calls it."""
    name = agent.name(original.__name__)

    @wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or agent.ended or agent.ring is None or agent.thread != get_ident() or not applies(*args):
            return original(*args, **kwargs)
        begin = monotonic_ns()
        try:
            return original(*args, **kwargs)
        finally:
            end = monotonic_ns()
            try:
                agent.put(begin, end - begin, DeviceWait.code, name, agent.step, agent.site(), 0, 0)
                if agent.timing:
                    agent.own_ns += monotonic_ns() - end
                    agent.hidden_ns += agent.wrapper_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a read of a device value", error)

    return read
