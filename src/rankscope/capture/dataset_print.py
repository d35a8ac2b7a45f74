"""Whether two ranks hold the same dataset: a fingerprint of what it consists of, without running its code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any, Final
from zlib import crc32

from rankscope.capture.batch_prints import look

MOST_VISITED: Final = 300
FEW: Final = 32
"""Items of a container that are looked at."""
DEEPEST: Final = 4
PLAIN: Final = (int, float, str, bytes, bool, type(None), complex)


def dataset_print(dataset: Any) -> int:
    """24 bits, never 0. Equal for datasets of equal attributes, also in different processes; of objects that cannot be
    looked into, only the class counts."""
    print = 0
    for part in _parts(dataset):
        print = crc32(part, print)
    return (print & 0xFFFFFF) or 1


def _parts(dataset: Any) -> Iterator[bytes]:
    """What is known of it, piece by piece."""
    tensor: Any = sys.modules["torch"].Tensor
    stack: list[tuple[Any, int]] = [(dataset, 0)]
    seen: set[int] = set()
    for _ in range(MOST_VISITED):
        if not stack:
            return
        item, depth = stack.pop()
        kind = type(item)
        if kind in PLAIN or isinstance(item, PurePath):
            yield repr(item)[:200].encode("utf-8", "replace")
            continue
        yield kind.__qualname__.encode("utf-8", "replace")
        if id(item) in seen or depth > DEEPEST:
            continue
        seen.add(id(item))
        if kind is tensor or kind.__module__ == "numpy":
            yield look(item, with_labels=False).fingerprint.to_bytes(4, "little")
        elif kind in (list, tuple):
            yield len(item).to_bytes(8, "little")
            stack += [(one, depth + 1) for one in islice(item, FEW)]
        elif kind is dict:
            yield len(item).to_bytes(8, "little")
            stack += [(one, depth + 1) for pair in islice(item.items(), FEW) for one in pair]
        elif callable(item) and hasattr(item, "__code__"):
            yield str(item.__code__.co_name).encode("utf-8", "replace")
        else:
            inner = getattr(item, "__dict__", None)
            if type(inner) is dict:
                names = sorted(k for k in inner if type(k) is str and not k.startswith("_rankscope"))[:FEW]
                stack += [(one, depth + 1) for name in names for one in (name, inner[name])]
