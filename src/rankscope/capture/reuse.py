"""Whether the gradients that an optimizer has used are gone before the next backward adds to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rankscope.capture.tensors.tensor_samples import readable

WATCHED: Final = 4
"""Gradients of an optimizer that are watched: its smallest ones."""
SMALL: Final = 1 << 16
"""Elements of the largest gradient that is read."""


@dataclass(slots=True)
class _Gradient:
    """One gradient, by where its parameter stands; holds no tensor."""

    group: int
    place: int
    memory: int
    version: int
    """Counts what is written into it, but not through `.data`."""
    left: bool = True
    """It is still as the optimizer used it, but for what backward added."""
    reused: bool = False


@dataclass(slots=True)
class Used:
    """The gradients of one optimizer from the end of its step to the end of its next one."""

    gradients: list[_Gradient] = field(default_factory=list)
    unread: bool = False
    site: int = 0

    @property
    def reused(self) -> int:
        """Gradients that were not cleared and that a backward added to."""
        return sum(one.left and one.reused for one in self.gradients)

    def before_backward(self, optimizer: Any, site: int) -> None:
        """See which ones the program has cleared, or changed by itself."""
        for one in self.gradients:
            if one.left:
                grad = _grad(optimizer, one)
                one.left = grad is not None and (grad.data_ptr(), grad._version) == (one.memory, one.version)
                if one.left and grad.device.type == "cpu":  # `.data.zero_()` changes no version
                    one.left = bool(grad.detach().count_nonzero())
        self.site = self.site or site

    def after_backward(self, optimizer: Any) -> None:
        """See which ones it has added to."""
        for one in self.gradients:
            if one.left:
                grad = _grad(optimizer, one)
                if grad is None:
                    one.left = False
                    continue
                now = grad.data_ptr(), grad._version
                one.reused = one.reused or now != (one.memory, one.version)
                one.memory, one.version = now


def used_by(optimizer: Any) -> Used:
    """The smallest gradients of an optimizer that has just stepped; none of those that are zero already."""
    found = []
    for g, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            grad = readable(parameter.grad)
            if grad is not None and grad.numel() <= SMALL:
                found.append((grad.numel(), g, place, grad))
    found.sort(key=lambda one: one[0])
    used = Used()
    for _, g, place, grad in found:
        if len(used.gradients) == WATCHED:
            break
        if grad.device.type != "cpu":
            used.unread = True
        elif not int(grad.detach().count_nonzero()):
            continue
        used.gradients.append(_Gradient(g, place, grad.data_ptr(), grad._version))
    return used


def _grad(optimizer: Any, one: _Gradient) -> Any:
    groups = optimizer.param_groups
    if one.group >= len(groups) or one.place >= len(groups[one.group]["params"]):
        return None
    return readable(groups[one.group]["params"][one.place].grad)


def watched(known: dict[int, Used], optimizers: list[tuple[int, Any]]) -> Iterator[tuple[Used, Any]]:
    """Those of the optimizers whose gradients are watched."""
    for number, optimizer in optimizers:
        used = known.get(number)
        if used is not None:
            yield used, optimizer
