"""Whether a line of the training loop makes the batch: what it assigns reaches the model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

TELLS = ("print", "log", "info", "debug", "warning", "write", "format")
"""Calls that use a value without training on it."""
WRITES = ("write", "writelines", "writerow", "writerows", "flush", "fsync")
"""Calls that bring text into a file: of a stream, of the `csv` module, of `os`."""


def feeds_forward(file: str, line: int, lines: frozenset[int] = frozenset()) -> bool:
    """True where what is assigned on `line` is used, as it is or computed into something else, on one of `lines` of
    the same function: those of the forward and backward pass. Where none of them lies in it, any call counts that does
    more than print.

    A loop that makes its batch itself (`x, y = load(step)`) has no DataLoader to be seen. False where the source cannot
    be read.
    """
    body = _function_at(file, line)
    reached = _assigned_on(body, line) if body is not None else set()
    if body is None or not reached:
        return False
    last = getattr(body, "end_lineno", None) or max((s.lineno for s in _statements(body)), default=0)
    forward_lines = {at for at in lines if getattr(body, "lineno", 1) <= at <= last}
    if not forward_lines:
        calls = (node for node in ast.walk(body) if isinstance(node, ast.Call) and node.lineno > line)
        return any(_names(call, ast.Load) & reached for call in calls if _called(call) not in TELLS)
    for statement in _statements(body):
        if statement.lineno <= line:
            continue
        used = bool(_names(statement, ast.Load) & reached)
        if used and any(statement.lineno <= at <= (statement.end_lineno or statement.lineno) for at in forward_lines):
            return True
        if used and isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            reached |= _names(statement, ast.Store)
    return False


def writes_lines(file: str, line: int) -> bool:
    """Whether a line of the source writes to an open file, or flushes one. False where the source cannot be read."""
    return any(
        _called(call) in WRITES or (_called(call) == "print" and any(k.arg == "file" for k in call.keywords))
        for call in _calls_on(file, line)
    )


def calls(file: str, line: int, name: str) -> bool:
    """Whether a line of the source calls something of this (last) name. False where the source cannot be read."""
    return any(_called(call) == name for call in _calls_on(file, line))


@lru_cache(maxsize=4096)
def _calls_on(file: str, line: int) -> tuple[ast.Call, ...]:
    tree = _tree(file)
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    return tuple(call for call in found if call.lineno <= line <= (call.end_lineno or call.lineno))


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))


def _statements(body: ast.AST) -> list[ast.stmt]:
    """Statements that hold no others, in the order of their lines."""
    simple = [node for node in ast.walk(body) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    return sorted(simple, key=lambda node: node.lineno)


def _assigned_on(body: ast.AST, line: int) -> set[str]:
    """Names that get their value on a line: of an assignment, or as the variable of a loop."""
    names: set[str] = set()
    for node in _assignments(body):
        if isinstance(node, ast.For):
            if node.lineno == line:
                names |= _names(node.target, ast.Store)
        elif node.lineno <= line <= (node.end_lineno or node.lineno):
            names |= _names(node, ast.Store)
    return names


def _assignments(body: ast.AST) -> Iterator[ast.Assign | ast.AnnAssign | ast.For]:
    for node in ast.walk(body):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.For)):
            yield node


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


@lru_cache(maxsize=256)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _function_at(file: str, line: int) -> ast.AST | None:
    """The innermost function around a line, or the module."""
    tree = _tree(file)
    if tree is None:
        return None
    best: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0):
            best = node
    return best
