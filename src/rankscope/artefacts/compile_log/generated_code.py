"""Which communication a compiled graph has: as its generated code calls it, and as it was planned."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

WAIT: Final = "wait_tensor"
MOST: Final = 10_000
"""Operations of one graph that are kept."""
ASYNCHRONOUS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Beginnings of the names of operations whose results have to be waited for."""
_CALL: Final = re.compile(
    r"^\s*(?:[\w\[\], ]+(?:: \"[^\"]*\")? = )?torch\.ops\._?c10d_functional(?:_autograd)?\.(\w+)(?:\.\w+)?\("
)
_NAME: Final = re.compile(r"(?:^|\.)_?c10d_functional(?:_autograd)?\.(\w+)|^(\w+)$")


def called(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Collectives and waits that lines of Python call, in order: `all_reduce_`, `wait_tensor`.

    A call in a comment is none, nor is the name of an operation in an assertion about its result.
    """
    found: list[str] = []
    for line in lines:
        if b"c10d_functional" not in line or len(found) >= MOST:
            continue
        call = _CALL.match(line.decode("utf-8", "replace"))
        if call is not None and (call[1] == WAIT or call[1].startswith(ASYNCHRONOUS)):
            found.append(call[1])
    return tuple(found)


def scheduled(names: object) -> tuple[str, ...] | None:
    """The same of the list that Inductor logs; None where it is no list."""
    if not isinstance(names, list):
        return None
    found = []
    for name in names[:MOST]:
        known = _NAME.search(str(name)[:200])
        short = (known[1] or known[2]) if known is not None else ""
        if short == WAIT or short.startswith(ASYNCHRONOUS):
            found.append(short)
    return tuple(found)
