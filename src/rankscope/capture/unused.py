"""Names for what DDP's reducer only counts: parameters that got no gradient."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

_INDICES = re.compile(r"did not receive grad[^:]*: ([\d ]+)")
MOST_NAMED = 8


def unused_names(text: str, trace: TracebackType | None) -> str:
    """`box_head.weight, box_head.bias` of DDP's error, from the wrapper in its traceback; "" of another error."""
    found = _INDICES.search(text)
    if found is None:
        return ""
    wrapper = _wrapper(trace)
    if wrapper is None:
        return ""
    names = {id(parameter): name for name, parameter in wrapper.module.named_parameters()}
    parameters = _reduced(wrapper)
    chosen = [names.get(id(parameters[int(index)]), "") for index in found[1].split() if int(index) < len(parameters)]
    more = f" and {len(chosen) - MOST_NAMED} more" if len(chosen) > MOST_NAMED else ""
    return ", ".join(filter(None, chosen[:MOST_NAMED])) + more


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
