"""Keeps torch.compile's frame evaluation away from our own functions, as it keeps itself away from torch's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


def hide_from_dynamo() -> None:
    """Mark every function of this package, so that dynamo passes over its frames and takes the user's inside.

    Without it dynamo would compile our stand-in for `Module.__call__` in place of the user's `forward`, with one
    cache and one recompile limit for all models. A function that dynamo inlines while it traces is not concerned.
    """
    skip = _skip()
    for name, module in list(sys.modules.items()):
        if name.startswith(("rankscope.capture", "rankscope.base")):
            for code in _codes(vars(module), name):
                skip(code)


def _skip() -> Callable[[CodeType], None]:
    import torch

    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):  # up to torch 2.6
        skip: Callable[[CodeType], None] = frames.skip_code
        return skip
    action = frames._FrameAction
    strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _codes(names: Any, module: str) -> Iterator[CodeType]:
    """Code of all functions among some names, of methods, and of the functions inside functions."""
    for name in list(names):
        value = names[name]
        if isinstance(value, property):
            value = value.fget
        value = getattr(value, "__wrapped__", value)  # of static and class methods and of context managers too
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value), module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
