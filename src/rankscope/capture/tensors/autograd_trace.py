"""Follows a value that is not finite back through the autograd graph, to where it came from.

The graph keeps what backward will need: inputs and results of many operations. Nothing is computed again; tensors are
read where they lie. Only called once a loss is lost anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

MOST_NODES: Final = 50_000
RESULTS: Final = ("_saved_result", "_saved_output", "_saved_out")
"""What holds all that an operation gave. (`_saved_result1` is a statistic, or a mask.)"""
RAISING: Final[dict[str, tuple[str, Callable[[Any], Any], str]]] = {
    "LogBackward0": ("_saved_self", lambda x: x <= 0, "the logarithm of {} values that are not positive"),
    "Log2Backward0": ("_saved_self", lambda x: x <= 0, "the logarithm of {} values that are not positive"),
    "Log10Backward0": ("_saved_self", lambda x: x <= 0, "the logarithm of {} values that are not positive"),
    "Log1PBackward0": ("_saved_self", lambda x: x <= -1, "log1p of {} values at or below -1"),
    "DivBackward0": ("_saved_other", lambda x: x == 0, "a division by {} zeros"),
    "ReciprocalBackward0": ("_saved_result", lambda x: x.isinf(), "1 over {} zeros"),
    "RsqrtBackward0": ("_saved_result", lambda x: ~x.isfinite(), "1 over the root of {} values at or below 0"),
    "SqrtBackward0": ("_saved_result", lambda x: x.isnan(), "the root of {} negative values"),
    "ExpBackward0": ("_saved_result", lambda x: x.isinf(), "exp overflows for {} values"),
    "AcosBackward0": ("_saved_self", lambda x: x.abs() > 1, "acos of {} values beyond 1"),
    "AsinBackward0": ("_saved_self", lambda x: x.abs() > 1, "asin of {} values beyond 1"),
}
"""Operation -> (what it saves, which of these make it fail, in words)."""
SINGULAR: Final = (
    "SqrtBackward0", "RsqrtBackward0", "LogBackward0", "Log1PBackward0", "Log2Backward0", "DivBackward0",
    "ReciprocalBackward0", "PowBackward0", "PowBackward1", "NormBackward0", "LinalgVectorNormBackward0",
    "AcosBackward0", "AsinBackward0", "Atan2Backward0", "StdBackward0", "CdistBackward0",
)  # fmt: skip
"""Operations whose derivative is infinite somewhere."""


REDUCES: Final = ("SumBackward", "MeanBackward")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value that is not finite was first seen."""

    node: Any
    what: str
    """`data`, `no-targets`, `operation` or `parameter`."""
    detail: str = ""
    low: float = math.nan
    high: float = math.nan
    variable: Any = None
    """The parameter, where `what` is `parameter`."""


def operation(node: Any) -> str:
    """`log` of `LogBackward0`."""
    name: str = node.name()
    return name.rstrip("0123456789").removesuffix("Backward").removeprefix("torch::autograd::").lower() or name


def trace(root: Any, lost_to_nan: bool) -> Origin | None:
    """The origin of what is not finite behind a graph node; None where the graph does not tell.

    `lost_to_nan`: the node gave NaN, not infinity.
    """
    seen: set[int] = set()
    # Depth first: what lies deepest was first. A node is looked at again after all that lies below it.
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack and len(seen) < MOST_NODES:
        node, below_is_done = stack.pop()
        if below_is_done:
            found = _own(node, lost_to_nan)
            if found is not None:
                return found
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        variable = getattr(node, "variable", None)
        if variable is not None:
            if not finite(variable):
                return Origin(node, "parameter", variable=variable)
            continue
        if _result_is_fine(node):
            continue
        stack.append((node, True))
        stack += [(child, False) for child, _ in reversed(node.next_functions) if child is not None]
    return None


def singular(root: Any, lost: Callable[[Any], bool]) -> Any:
    """Of a graph whose parameters are partly lost (`lost(variable)`): the operation with an infinite derivative that
    all lost parameters and none of the others lie behind; of several the one nearest to the loss. None: there is none.
    """
    order = list(_nodes(root))
    behind: dict[int, tuple[int, int]] = {}
    """node -> (lost parameters, others) behind it."""
    sets: dict[int, frozenset[int]] = {}
    variables: dict[int, bool] = {}
    for node in reversed(order):
        variable = getattr(node, "variable", None)
        if variable is not None:
            variables[id(node)] = lost(variable)
            sets[id(node)] = frozenset((id(node),))
        else:
            sets[id(node)] = frozenset().union(*(sets.get(id(c), frozenset()) for c, _ in node.next_functions if c))
        mine = sets[id(node)]
        bad = sum(variables[v] for v in mine)
        behind[id(node)] = bad, len(mine) - bad
    total = sum(variables.values())
    for node in order:
        if node.name() in SINGULAR and behind[id(node)] == (total, 0) and total:
            return node
    return next((node for node in order if node.name() in SINGULAR and behind[id(node)][0]), None)


def parameter_before(node: Any) -> Any:
    """The nearest parameter among what went into a node; None where there is none."""
    queue: list[Any] = [node]
    seen: set[int] = set()
    while queue and len(seen) < MOST_NODES:
        here = queue.pop(0)
        variable = getattr(here, "variable", None)
        if variable is not None:
            return variable
        for child, _ in here.next_functions:
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                queue.append(child)
    return None


def finite(tensor: Any) -> bool:
    """Whether a tensor holds nothing but numbers; True where it cannot be read without waiting."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return True
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    return bool(torch.isfinite(tensor.detach()).all())


def _nodes(root: Any) -> Iterator[Any]:
    """All nodes behind one, each after all that use it."""
    order: list[Any] = []
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack and len(seen) < MOST_NODES:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child, _ in node.next_functions if child is not None]
    yield from reversed(order)


def _saved(node: Any) -> Iterator[tuple[str, Any]]:
    """What a node has saved. What the program has packed (checkpointing, offloading) is left out: to read it would run
    the program's code."""
    import torch

    for name in dir(node):
        if not name.startswith("_raw_saved_"):
            continue
        try:
            raw = getattr(node, name)
            if getattr(raw, "unpack_hook", raw) is not None:
                continue
            value = getattr(node, name.removeprefix("_raw"))
        except RuntimeError:  # freed by a backward before
            continue
        if isinstance(value, torch.Tensor):
            yield name.removeprefix("_raw"), value


def _result_is_fine(node: Any) -> bool:
    """Whether it saved its result, and that is finite: what lies below was masked, or is no harm."""
    results = [value for name, value in _saved(node) if name in RESULTS]
    return bool(results) and all(finite(value) for value in results)


def _own(node: Any, lost_to_nan: bool) -> Origin | None:
    """What a node itself did, nothing below it being the origin."""
    name = node.name()
    saved = dict(_saved(node))
    inputs = {key: value for key, value in saved.items() if key not in RESULTS}
    bad = next((value for value in inputs.values() if not finite(value)), None)
    if bad is not None:
        # It has no origin in the graph: what came in was made outside of it.
        return Origin(node, "data", f"{int((~bad.detach().isfinite()).sum())} of {bad.numel()} values", *_range(bad))
    if name.startswith("NllLoss") and "_saved_total_weight" in saved and float(saved["_saved_total_weight"]) == 0:
        return Origin(node, "no-targets", "every target of the batch is ignored")
    if name == "MeanBackward0" and getattr(node, "_saved_self_sym_numel", 1) == 0:
        return Origin(node, "no-targets", "the mean of no elements")
    if name == "DivBackward0" and lost_to_nan and _scalar_over_zero(node, saved):
        return Origin(node, "no-targets", "0 / 0: the batch has nothing to average over")
    if name == "PowBackward0" and "_saved_self" in saved:
        values = saved["_saved_self"].detach()
        count = int((~(values ** float(node._saved_exponent)).isfinite()).sum())
        if count:
            words = f"{count} of {values.numel()} values to the power of {float(node._saved_exponent):g}"
            return Origin(node, "operation", words, *_range(values))
    known = RAISING.get(name)
    if known is not None and known[0] in saved:
        attribute, fails, words = known
        values = saved[attribute].detach()
        if values.device.type == "cpu" and values.is_floating_point():
            count = int(fails(values).sum())
            if count:
                return Origin(node, "operation", words.format(f"{count} of {values.numel()}"), *_range(values))
    results = [value for key, value in saved.items() if key in RESULTS]
    if any(not finite(value) for value in results):
        return Origin(node, "operation", "finite inputs, a result that is not", *_ranges(inputs.values()))
    return None


def _scalar_over_zero(node: Any, saved: Any) -> bool:
    """A sum divided by a single 0: by the number of what was summed. With a NaN behind it the sum was 0 itself, for
    anything else over 0 is infinite."""
    other = saved.get("_saved_other")
    if other is None or other.numel() != 1 or float(other) != 0:
        return False
    upper = saved.get("_saved_self")
    if upper is not None:
        return bool(upper.numel() == 1 and float(upper) == 0)
    child = node.next_functions[0][0]
    return child is not None and child.name().startswith(REDUCES)


def _range(tensor: Any) -> tuple[float, float]:
    values = tensor.detach()
    values = values[values.isfinite()]
    return (float(values.min()), float(values.max())) if values.numel() else (math.nan, math.nan)


def _ranges(tensors: Any) -> tuple[float, float]:
    ranges = [_range(t) for t in tensors if t.is_floating_point() and t.device.type == "cpu"]
    known = [r for r in ranges if not math.isnan(r[0])]
    return (min(r[0] for r in known), max(r[1] for r in known)) if known else (math.nan, math.nan)
