"""Whether a line of the training loop makes the batch: what it assigns reaches the backward pass through a call."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path


def feeds_forward(file: str, line: int) -> bool:
    """True where names assigned on `line` are later arguments of a call in the same function.

    A loop that makes its batch itself (`x, y = load(step)`) has no DataLoader to be seen; the assigned names, or what
    is computed from them, are what the model is called with. False where the source cannot be read.
    """
    body = _function_at(file, line)
    if body is None:
        return False
    assigned = _assigned_on(body, line)
    if not assigned:
        return False
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and node.lineno > line:
            used = {
                n.id
                for arg in [*node.args, *(k.value for k in node.keywords)]
                for n in ast.walk(arg)
                if isinstance(n, ast.Name)
            }
            if used & assigned:
                return True
    return False


def _assigned_on(body: ast.AST, line: int) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.For)) and node.lineno <= line:
            if isinstance(node, ast.For):
                if node.lineno == line:
                    names |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            elif line <= (node.end_lineno or node.lineno):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


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
