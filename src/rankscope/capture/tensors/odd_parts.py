"""Parts of models that are not what their parameters say: unregistered, loaded, or frozen by code without effect."""

from __future__ import annotations

import dis
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

from rankscope.capture import callsite
from rankscope.capture.inventory import clean

DEPTH: Final = 2
"""Containers in containers that are looked into, and methods called by methods."""
MOST_ITEMS: Final = 512
"""Of a container."""
OWN = frozenset({"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
"""Attributes of each module that hold nothing hidden and decide no freezing."""

FREEZING: Final = re.compile(r"fr(o|ee)z|fix|lock", re.IGNORECASE)
"""Settings that say whether something is frozen; where code asks for none of these, all its settings count."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of it, without any tensor."""

    path: str
    why: int
    elements: int
    parameters: int
    held: int
    training: bool
    place: str


def hidden(root: Any, known: set[int], held: set[int]) -> Iterator[tuple[str, list[Any], list[Any], list[Any]]]:
    """(path, owners, parameters, those that an optimizer holds) of what a model keeps in plain containers.

    Only parameters with a gradient, which are not among `known`; what is bound to an attribute directly, past the
    model's own bookkeeping, was meant to be hidden.
    """
    for path, module in root.named_modules():
        for name, value in vars(module).items():
            if name in OWN or type(value) not in (list, tuple, dict) or not value:
                continue
            owners = list(_modules_in(value, DEPTH))
            parameters = {id(p): p for owner in owners for p in _parameters(owner)}
            found = [p for key, p in parameters.items() if key not in known and p.requires_grad and p.grad is not None]
            if found:
                yield clean(f"{path}.{name}".lstrip(".")), owners, found, [p for p in found if id(p) in held]


def _modules_in(value: Any, depth: int) -> Iterator[Any]:
    """Modules and parameters in a container."""
    import torch

    items: Iterable[Any] = value.values() if isinstance(value, dict) else value
    for index, item in enumerate(items):
        if index >= MOST_ITEMS:
            return
        if isinstance(item, (torch.nn.Module, torch.nn.Parameter)):
            yield item
        elif depth and type(item) in (list, tuple, dict):
            yield from _modules_in(item, depth - 1)


def _parameters(owner: Any) -> Iterable[Any]:
    import torch

    return (owner,) if isinstance(owner, torch.nn.Parameter) else owner.parameters()


# -- freezing in train() -----------------------------------------------------------------------------------------


def idle_freezes(root: Any) -> Iterator[tuple[str, Any, CodeType]]:
    """(path, module, code of its `train`) of modules whose `train` freezes parameters, but none of theirs is frozen.

    Not where the code asks for a setting of the module that is off: `frozen_stages = -1`, `freeze = False`.
    """
    import torch

    usual = torch.nn.Module.train
    for path, module in root.named_modules():
        train = type(module).train
        if train is usual or not isinstance(train, FunctionType):
            continue
        code = train.__code__
        names = _freezing_names(type(module), code, DEPTH)
        if names is None or any(not p.requires_grad for p in module.parameters()):
            continue
        settings = {name: value for name, value in vars(module).items() if name in names and name not in OWN}
        about = [value for name, value in settings.items() if FREEZING.search(name)] or list(settings.values())
        if not any(_is_off(value) for value in about):
            yield clean(path), module, code


def _is_off(value: Any) -> bool:
    if isinstance(value, (bool, int, float)):
        return value is False or value < 0 or (not isinstance(value, bool) and value == 0)
    return value is None or (isinstance(value, (str, list, tuple, set, dict)) and not value)


def _freezing_names(kind: type, code: CodeType, depth: int) -> set[str] | None:
    """All names that the code and the methods it calls use; None where no `requires_grad` is set in them."""
    names, freezes = _uses(code)
    if depth:
        for name in tuple(names):
            method = getattr(kind, name, None)
            if isinstance(method, FunctionType) and not method.__module__.startswith("torch.") and name != "train":
                more = _freezing_names(kind, method.__code__, depth - 1)
                if more is not None:
                    names |= more
                    freezes = True
    return names if freezes else None


def _uses(code: CodeType) -> tuple[set[str], bool]:
    """(names, whether it sets `requires_grad`) of a code object and of those inside it."""
    names = set(code.co_names)
    freezes = "requires_grad_" in names or any(
        one.opname == "STORE_ATTR" and one.argval == "requires_grad" for one in dis.get_instructions(code)
    )
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more, deeper = _uses(inner)
            names |= more
            freezes = freezes or deeper
    return names, freezes


def place(code: CodeType) -> str:
    """`file:line:function` of a function."""
    return callsite.describe(code, code.co_firstlineno)


# -- loaded values -----------------------------------------------------------------------------------------------


class Loaded:
    """The modules that were given a state dict; keeps none alive."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def note(self, module: Any) -> None:
        self._known[id(module)] = weakref.ref(module)

    def elements(self, root: Any) -> int:
        """Elements of a model's parameters that were loaded with it, with a part of it, or with what it is part of."""
        if _pretrained(root):
            return sum(p.numel() for p in root.parameters())
        loaded = [one for key, ref in self._known.items() if (one := ref()) is not None and id(one) == key]
        inside: Mapping[int, Any] = {id(p): p for one in loaded for p in one.parameters()}
        return sum(p.numel() for p in root.parameters() if id(p) in inside)


def _pretrained(root: Any) -> bool:
    """Whether transformers says that it took the model from somewhere."""
    config = getattr(root, "config", None)
    return bool(getattr(config, "_name_or_path", ""))
