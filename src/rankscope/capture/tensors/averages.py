"""Finds copies of weights that the program calls averages: by the variable that holds them, or by their class."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

from rankscope.capture import callsite
from rankscope.capture.tensors.tensor_samples import readable

NAMES: Final = re.compile(
    r"(^|_)((ema|swa|polyak|shadow)(_?(model|net|network|weights?|params?|state|dict|\d+))*"
    r"|(averaged?|avg)(_?(model|net|network|weights?|params?|state))+(_?dict)?)$",
    re.IGNORECASE,
)
"""Variables: `ema`, `model_ema`, `ema_model`, `averaged_weights`."""
CLASSES: Final = re.compile(r"EMA|Ema([A-Z_]|$)|MovingAverage|AveragedModel|WeightAverag|Polyak")
SETTINGS: Final = re.compile(r"start|begin|after|warm|delay|every|interval|freq|period", re.I)
"""Settings that say when the average begins, or how often it follows."""
MOST_FRAMES, MOST_NAMES, MOST_TENSORS = 12, 300, 8
SHARED: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""What a function would get the dictionary of its variables by."""
REFERENCES: Final = 3
"""To a dictionary that only its frame and we know: the frame, our variable, the argument of `getrefcount`."""


@dataclass(frozen=True, slots=True)
class Found:
    """One average. Holds its tensors: to be let go at once."""

    name: str
    kind: str
    tensors: list[Any]
    waits: int


def averages(frame: FrameType | None, known: set[int]) -> list[Found]:
    """Averages that variables of the running user functions and their objects hold; `known`: identities of the
    parameters that are trained, which are no averages."""
    found: dict[int, Found] = {}
    for name, value, waits in _variables(frame):
        if id(value) in found or "teacher" in name.lower():
            continue
        tensors = list(_tensors(value, known))[:MOST_TENSORS]
        if tensors:
            found[id(value)] = Found(name, type(value).__name__, tensors, max(waits, _waits(_fields(value))))
    return list(found.values())


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any, int]]:
    """(name, value, steps that it waits by settings beside it) of what looks like an average."""
    left = MOST_FRAMES
    seen: set[int] = set()
    while frame is not None and left:
        if not callsite.is_library(frame.f_code):
            left -= 1
            spaces = [_locals(frame)]
            for owner in (frame.f_globals, spaces[0].get("self")):
                if owner is not None and id(owner) not in seen:
                    seen.add(id(owner))
                    spaces.append(owner if isinstance(owner, dict) else _fields(owner))
            for space in spaces:
                yield from _among(space)
        frame = frame.f_back


def _locals(frame: FrameType) -> dict[str, Any]:
    """Those of a function's variables that may matter.

    Before Python 3.13 `f_locals` is a copy that the frame keeps, and with it all that is in it: it is emptied again. A
    function that asks for its own `locals()` would hold the same dictionary: it is left alone.
    """
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED or _asks_for_locals(frame.f_code):
        return {}  # the variables of a module are its globals
    if sys.gettrace() is not None:
        return {}  # a debugger writes variables back through that very dictionary
    space = frame.f_locals
    found = {name: value for name, value in list(space.items())[:MOST_NAMES] if name == "self" or _about(name, value)}
    if sys.version_info < (3, 13) and sys.getrefcount(space) <= REFERENCES:
        space.clear()
    return found


def _asks_for_locals(code: CodeType) -> bool:
    key = code.co_filename, code.co_firstlineno, code.co_name
    if key not in _asking:
        loads = (one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        _asking[key] = any(name in SHARED for name in loads)
    return _asking[key]


_asking: dict[tuple[str, int, str], bool] = {}


def _about(name: str, value: Any) -> bool:
    """Whether a variable may be an average, or a setting of one."""
    if NAMES.search(name) or CLASSES.search(type(value).__name__):
        return True
    low = name.lower()
    return any(word in low for word in ("ema", "avg", "swa"))


def _among(space: dict[str, Any]) -> Iterator[tuple[str, Any, int]]:
    items = [(name, value) for name, value in list(space.items())[:MOST_NAMES] if _about(name, value)]
    waits = _waits(dict(items))
    for name, value in items:
        named = NAMES.search(name) or CLASSES.search(type(value).__name__)
        if named and not isinstance(value, (type, FunctionType, BuiltinFunctionType, MethodType)):
            yield name, value, waits


def _fields(value: Any) -> dict[str, Any]:
    fields = getattr(value, "__dict__", None)
    return fields if isinstance(fields, dict) else {}


def _waits(fields: dict[str, Any]) -> int:
    numbers = [v for name, v in fields.items() if type(v) is int and SETTINGS.search(name)]
    return max((v for v in numbers if 0 < v < 1 << 31), default=0)


def _tensors(value: Any, known: set[int], depth: int = 1) -> Iterator[Any]:
    """Tensors of an average that lie in memory and have more than one element."""
    import torch

    if isinstance(value, torch.Tensor):
        plain = readable(value)
        if plain is not None and plain.device.type == "cpu" and plain.numel() > 1 and id(value) not in known:
            yield plain
    elif isinstance(value, torch.nn.Module):
        for parameter in value.parameters():
            yield from _tensors(parameter, known, 0)
    elif isinstance(value, (dict, list, tuple)):
        items = value.values() if isinstance(value, dict) else value
        for item in list(items)[:MOST_NAMES]:
            if isinstance(item, torch.Tensor):
                yield from _tensors(item, known, 0)
    elif depth:
        for item in list(_fields(value).values())[:MOST_NAMES]:
            if isinstance(item, (torch.nn.Module, dict, list, tuple)):
                yield from _tensors(item, known, depth - 1)
