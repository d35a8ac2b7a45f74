"""Activation checkpointing that loses gradients: the reentrant kind, with inputs of which none needs a gradient."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture import callsite
from rankscope.capture.inventory import clean
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.wiring import CUT_BY_CHECKPOINT, OddPart

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MOST_PARTS = 200
"""Records of a process: more say nothing new."""


class Checkpointing(Source):
    """Calls of `torch.utils.checkpoint` with `use_reentrant=True` whose inputs need no gradient though autograd is on.

    Such a call gives out tensors without a graph: nothing inside of it learns. Each other call costs one look at its
    arguments.
    """

    name = "checkpointing"
    emits = (OddPart,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        import torch
        from torch.utils.checkpoint import CheckpointFunction

        self._agent = agent
        self._patches = Patches()
        self._seen: set[int] = set()
        self._forget()
        agent.in_child.append(self._forget)
        original = CheckpointFunction.apply.__func__  # type: ignore[attr-defined]
        tensor, grad_enabled = torch.Tensor, torch.is_grad_enabled
        is_compiling = torch.compiler.is_compiling

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if args and grad_enabled() and not is_compiling():
                needed = any(isinstance(x, tensor) and x.requires_grad for x in args)
                if not needed:
                    self._cut(args[0], args[2:])
            return original(cls, *args, **kwargs)

        self._patches.replace(CheckpointFunction, "apply", classmethod(apply))

    def remove(self) -> None:
        self._patches.undo()
        self._agent.in_child.remove(self._forget)

    def _forget(self) -> None:
        self._seen.clear()

    def _cut(self, function: Any, args: Any) -> None:
        """Write what the call runs, once for each module."""
        agent = self._agent
        if agent.thread != get_ident() or agent.ended or agent.ring is None or len(self._seen) >= MOST_PARTS:
            return
        try:
            for module in _modules_of(function, args):
                if id(module) not in self._seen:
                    self._seen.add(id(module))
                    self._put(module)
        except Exception as error:  # noqa: BLE001
            swallow("looking at a checkpointed call", error)

    def _put(self, module: Any) -> None:
        agent = self._agent
        found = [p for p in module.parameters() if p.requires_grad]
        if not found:
            return  # a frozen block has no gradient to lose
        held = {id(p) for _, one in agent.optimizers.alive() for group in one.param_groups for p in group["params"]}
        mine = sum(id(p) in held for p in found)
        path, model = self._place(module)
        flags = model | CUT_BY_CHECKPOINT << 16 | bool(module.training) << 20 | agent.site(3) << 32
        elements = sum(p.numel() for p in found)
        agent.put(
            monotonic_ns(), 0, OddPart.code, agent.name(path), agent.step, elements, len(found) | mine << 32, flags
        )  # fmt: skip

    def _place(self, module: Any) -> tuple[str, int]:
        """(path, name id of the model) of a module; its class where no model has it."""
        for root in self._agent.roots:
            model = root.model()
            for path, one in model.named_modules() if model is not None else ():
                if one is module:
                    return clean(path) or root.name, root.name_id
        return type(module).__name__, 0


def _modules_of(function: Any, args: Any) -> Iterator[Any]:
    """The modules that a checkpointed function runs, as far as it shows: itself, what it is bound to or encloses, its
    arguments."""
    module_type = sys.modules["torch"].nn.Module
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
    code = getattr(function, "__code__", None)
    bound = getattr(function, "__self__", None)
    candidates = [function, *args, *cells]
    for one in list(candidates):
        if isinstance(one, (list, tuple)):
            candidates += list(one)[:64]
        elif getattr(one, "__func__", None) is not None:  # a method among the cells
            candidates.append(one.__self__)
    found = [one for one in candidates if isinstance(one, module_type)]
    if isinstance(bound, module_type):
        found.append(bound)
    # A block that encloses its model: only what it names.
    if code is not None and not callsite.is_library(code) and len(found) == 1 and found[0] is not function:
        parts = [getattr(found[0], name, None) for name in code.co_names]
        inner = [part for part in parts if isinstance(part, module_type)]
        found = inner or found
    yield from found


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
