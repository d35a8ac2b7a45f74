"""What the source of a program says of its lines: in one loop, one behind the other's loop, taking a lock."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from rankscope.analysis.stacks import Place

LOOPS = (ast.For, ast.AsyncFor, ast.While)


def same_loop(a: Place | None, b: Place | None) -> bool:
    """Whether two lines are in the body of the same innermost loop, or of the same function without one."""
    if a is None or b is None or a.file != b.file:
        return False
    first, second = _loops(a), _loops(b)
    if not first and not second:
        return a.function == b.function
    return bool(first) and bool(second) and first[-1] is second[-1]


def left_loop_by_choice(inside: Place | None, behind: Place | None) -> bool | None:
    """Whether the loop around `inside`, which `behind` is not in, can be left by a `break`, a `return` or a condition.

    None where `behind` does not lie behind such a loop of the same function.
    """
    if inside is None or behind is None or inside.file != behind.file or inside.function != behind.function:
        return None
    loops = [loop for loop in _loops(inside) if loop not in _loops(behind)]
    if not loops or behind.line <= (loops[0].end_lineno or 0):
        return None
    return any(_may_leave(loop) for loop in loops)


def leaving(inside: Place | None) -> Place | None:
    """The first `break` or `return` in the loops around a line, or the head of a `while`; None: there is none."""
    if inside is None:
        return None
    for loop in reversed(_loops(inside)):
        ways = [node.lineno for node in ast.walk(loop) if isinstance(node, (ast.Break, ast.Return))]
        if ways or isinstance(loop, ast.While):
            return Place(inside.file, min(ways, default=loop.lineno), inside.function)
    return None


def takes_lock(place: Place | None) -> bool:
    """Whether a line takes a lock: `with lock:` (a name, no call), or `.acquire()`."""
    tree = _tree(place.file) if place is not None else None
    if tree is None or place is None:
        return False
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno == place.line:
            return any(isinstance(item.context_expr, (ast.Name, ast.Attribute)) for item in node.items)
        acquires = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire"
        if acquires and node.lineno <= place.line <= (node.end_lineno or node.lineno):  # type: ignore[attr-defined]
            return True
    return False


def head(inside: Place | None) -> Place | None:
    """The head of the innermost loop around a line; None where it is in no loop, or the source cannot be read."""
    loops = _loops(inside) if inside is not None else []
    return Place(inside.file, loops[-1].lineno, inside.function) if inside is not None and loops else None


def _may_leave(loop: ast.stmt) -> bool:
    return isinstance(loop, ast.While) or any(isinstance(node, (ast.Break, ast.Return)) for node in ast.walk(loop))


def _loops(place: Place) -> list[ast.stmt]:
    """The loops around a line, outermost first; [] where there is none, or the source cannot be read."""
    tree = _tree(place.file)
    if tree is None:
        return []
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, LOOPS) and node.body[0].lineno <= place.line <= (node.end_lineno or 0)
    ]
    return sorted(found, key=lambda node: node.lineno)


@lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        lines = linecache.getlines(file)
        return ast.parse("".join(lines)) if lines else None
    except (SyntaxError, ValueError):
        return None
