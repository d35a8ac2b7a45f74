"""Finds in the graph of a loss the operations that sum over ranks both forward and backward."""

from __future__ import annotations

from typing import Any, Final

MOST_NODES: Final = 4000
SUMS: Final = ("all_reduce",)
KNOWN: Final = ("torch.distributed.nn.functional._AllReduce",)
"""Of torch's own: its backward calls itself by another name."""
FUNCTIONAL: Final = "_c10d_functional_all_reduce"
"""In the name of the node of a functional collective that is differentiated."""

_answers: dict[type, bool] = {}


def summed_backward(loss: Any) -> tuple[list[Any], list[str]]:
    """(leaf tensors whose gradient goes through such an operation, classes of these operations).

    The operation's input is part of the model on each rank, its output the same on all; where each rank then computes
    the same loss, backward adds that loss's gradient once for each rank.
    """
    root = getattr(loss, "grad_fn", None)
    if root is None:
        return [], []
    found: list[Any] = []
    seen = {root}
    todo = [root]
    while todo and len(seen) < MOST_NODES:
        node = todo.pop()
        cls = getattr(node, "_forward_cls", None)
        if _sums_twice(cls) if cls is not None else FUNCTIONAL in type(node).__name__:
            found.append(node)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    leaves: list[Any] = []
    seen, todo = set(found), list(found)
    while todo and len(seen) < MOST_NODES:
        for following, _ in todo.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                variable = getattr(following, "variable", None)
                leaves += [variable] if variable is not None else []
                todo.append(following)
    return leaves, sorted({_name(node) for node in found})


def _name(node: Any) -> str:
    cls = getattr(node, "_forward_cls", None)
    return cls.__name__ if cls is not None else "all_reduce"


def _sums_twice(cls: type) -> bool:
    """Whether both passes of an autograd function call a sum over ranks, by the names in their code."""
    known = _answers.get(cls)
    if known is None:
        both = [getattr(getattr(cls, name, None), "__code__", None) for name in ("forward", "backward")]
        called = all(code is not None and any(n in code.co_names for n in SUMS) for code in both)
        known = _answers[cls] = called or f"{cls.__module__}.{cls.__qualname__}" in KNOWN
    return known
