"""Finds modules whose own code calls a dropout function without asking for their mode."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Final

from rankscope.capture import callsite

FUNCTIONS: Final = frozenset(
    {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
     "dropout_", "scaled_dot_product_attention"}
)  # fmt: skip
"""Of torch and torch.nn.functional: they drop whenever they are told to."""
DEPTH: Final = 2
"""Methods called by methods that are looked into."""

_known: dict[type, str] = {}


def calls_dropout(root: Any) -> str:
    """`Class|file:line` of the first module in a model that calls a dropout function and never looks at `training`."""
    for module in root.modules():
        kind = type(module)
        if kind not in _known:
            _known[kind] = _place(kind)
        if _known[kind]:
            return f"{kind.__name__}|{_known[kind]}"
    return ""


def _place(kind: type) -> str:
    """`file:line:function` of the code that drops; empty where there is none."""
    forward = inspect.unwrap(getattr(kind, "forward", None))  # type: ignore[arg-type]
    if kind.__module__.startswith("torch.") or not isinstance(forward, FunctionType):
        return ""
    return _drops(kind, forward, DEPTH)


def _drops(kind: type, function: FunctionType, depth: int) -> str:
    code = function.__code__
    asks = "training" in code.co_names or any("training" in name for name in code.co_varnames)
    if not asks and _mentions(function):
        return callsite.describe(code, code.co_firstlineno)
    for name in code.co_names if depth else ():
        method = getattr(kind, name, None)
        if isinstance(method, FunctionType) and not method.__module__.startswith("torch.") and name != "forward":
            found = _drops(kind, method, depth - 1)
            if found:
                return found
    return ""


def _mentions(function: FunctionType) -> bool:
    """Whether a function uses one of torch's dropout functions: `F.dropout`, `torch.dropout`, or `dropout` alone."""
    import torch

    places = (torch, torch.nn.functional)
    wanted = [getattr(place, name) for place in places for name in FUNCTIONS if hasattr(place, name)]
    attention = torch.nn.functional.scaled_dot_product_attention
    for code in _codes(function.__code__):
        value: Any = None
        for one in dis.get_instructions(code):
            if one.opname == "LOAD_GLOBAL":
                value = function.__globals__.get(one.argval)
            elif one.opname in ("LOAD_ATTR", "LOAD_METHOD") and inspect.ismodule(value):
                value = getattr(value, one.argval, None)
            else:
                value = None
            if any(value is function for function in wanted) and (value is not attention or _drops_attention(code)):
                return True
    return False


def _drops_attention(code: CodeType) -> bool:
    """Whether a call of attention is given a probability from somewhere: without one it drops nothing."""
    given = any(isinstance(const, tuple) and "dropout_p" in const for const in code.co_consts)
    return given and any("drop" in name for name in (*code.co_names, *code.co_varnames))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
