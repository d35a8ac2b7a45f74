"""The page about a cause: what `rankscope causes CODE` prints."""

from __future__ import annotations

import inspect
import textwrap

from rankscope.base.causes import Cause

WIDTH = 100


def format_page(cause: Cause, body: str | None) -> str:
    """Code, kind and meaning, then `body` (the docstring of the detector that finds it), no line wider than 100."""
    parts = [f"{cause.code}  ({cause.kind})", textwrap.fill(cause.meaning, WIDTH)]
    if body and body.strip():
        parts += [_fitted(paragraph) for paragraph in inspect.cleandoc(body).split("\n\n")]
    return "\n\n".join(parts) + "\n"


def _fitted(paragraph: str) -> str:
    """Running text is filled anew where a line is too long; lists, tables and code are left as they are."""
    lines = paragraph.splitlines()
    laid_out = any(line.startswith((" ", "- ", "* ", "|", "```")) for line in lines)
    if laid_out or all(len(line) <= WIDTH for line in lines):
        return paragraph
    heading = [lines.pop(0)] if lines[0].startswith("#") else []
    return "\n".join([*heading, textwrap.fill(" ".join(lines), WIDTH)])
