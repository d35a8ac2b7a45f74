"""Names for what DDP's reducer only counts: parameters that got no gradient."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from types import CodeType, TracebackType
from typing import Any

from rankscope.capture.callsite import is_library

_INDICES = re.compile(r"did not receive grad[^:]*: ([\d ]+)")
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Unused:
    """The parameters of DDP's error."""

    names: str
    """`box_head.weight, box_head.bias`."""
    forward: CodeType | None
    """The user's forward that should have used them: that of the module they are children of."""


def unused_parameters(text: str, trace: TracebackType | None) -> Unused | None:
    """What DDP's error speaks of, from the wrapper in its traceback; None of another error."""
    found = _INDICES.search(text)
    wrapper = _wrapper(trace) if found is not None else None
    if found is None or wrapper is None:
        return None
    names = {id(parameter): name for name, parameter in wrapper.module.named_parameters()}
    parameters = _reduced(wrapper)
    chosen = [names.get(id(parameters[int(index)]), "") for index in found[1].split() if int(index) < len(parameters)]
    more = f" and {len(chosen) - MOST_NAMED} more" if len(chosen) > MOST_NAMED else ""
    return Unused(", ".join(filter(None, chosen[:MOST_NAMED])) + more, _forward(wrapper.module, chosen))


def _forward(model: Any, names: list[str]) -> CodeType | None:
    paths = zip(*(name.split(".")[:-1] for name in names), strict=False)
    shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, paths)]
    for depth in range(max(0, len(shared) - 1), -1, -1):
        code: CodeType | None = getattr(model.get_submodule(".".join(shared[:depth])).forward, "__code__", None)
        if code is not None and not is_library(code):
            return code
    return None


def _reduced(wrapper: Any) -> list[Any]:
    """The parameters in the order in which DDP's reducer counts them: those with a gradient, each once."""
    wanted = {id(parameter): parameter for parameter in wrapper._module_parameters if parameter.requires_grad}
    return list(wanted.values())


def _wrapper(trace: TracebackType | None) -> Any:
    while trace is not None:
        candidate = trace.tb_frame.f_locals.get("self")
        if type(candidate).__name__ == "DistributedDataParallel" and hasattr(candidate, "_module_parameters"):
            return candidate
        trace = trace.tb_next
    return None
