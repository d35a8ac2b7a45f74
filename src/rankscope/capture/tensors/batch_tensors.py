"""The tensors of a batch, whatever it is made of, each with where it is."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from typing import Any, Final

MOST_TENSORS: Final = 16
MOST_ITEMS: Final = 64
"""Of one dictionary or object."""
MOST_OF_A_LIST: Final = 4
"""Of a list or tuple that has more than a pair or two: of a list of samples a few stand for all."""
SHORT_LIST: Final = 8
DEPTH: Final = 4


def tensors_in(value: Any, path: str, most: int = MOST_TENSORS) -> Iterator[tuple[str, Any]]:
    """(path, tensor) of the first tensors among dictionaries, dataclasses, tuples and lists in each other.

    Nothing of the user's is called: no property, no `__getitem__` of a class of his own, no iterator.
    """
    import torch

    found = 0
    for where, one in _leaves(value, path, DEPTH):
        if isinstance(one, torch.Tensor):
            yield where, one
            found += 1
            if found >= most:
                return


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if isinstance(value, UserDict):
        value, kind = value.data, dict
    if isinstance(value, dict):
        items = [(f"{path}[{key!r}]", one) for key, one in list(dict.items(value))[:MOST_ITEMS] if _is_key(key)]
    elif isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        items = [(f"{path}.{name}", one) for name, one in zip(kind._fields, tuple.__iter__(value), strict=False)]
    elif kind in (tuple, list):
        items = [(f"{path}[{i}]", value[i]) for i in range(len(value) if len(value) <= SHORT_LIST else MOST_OF_A_LIST)]
    elif isinstance(getattr(kind, "__dataclass_fields__", None), dict):
        own = getattr(value, "__dict__", {})
        items = [(f"{path}.{name}", own[name]) for name in list(kind.__dataclass_fields__)[:MOST_ITEMS] if name in own]
    else:
        yield path, value
        return
    if depth:
        for where, one in items:
            yield from _leaves(one, where, depth - 1)


def _is_key(key: Any) -> bool:
    return type(key) in (str, int)
