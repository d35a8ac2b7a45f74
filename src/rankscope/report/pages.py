"""The page about a cause: what `rankscope causes CODE` prints."""

from __future__ import annotations

import inspect
import textwrap

from rankscope.base import causes
from rankscope.base.causes import Cause

WIDTH = 100


def cause_page(code: str) -> str:
    """The page of the cause with this code, without a detector's text; UserError for an unknown code."""
    return format_page(causes.cause(code), None)


def format_page(cause: Cause, body: str | None) -> str:
    """Code, kind and meaning, then `body` (the docstring of the detector that finds it) as it is written."""
    parts = [f"{cause.code}  ({cause.kind})", textwrap.fill(cause.meaning, WIDTH)]
    if body and body.strip():
        parts.append(inspect.cleandoc(body))
    return "\n\n".join(parts) + "\n"
