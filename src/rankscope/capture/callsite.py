"""Which line of the user's code is at work: the innermost frame that is neither torch's nor ours."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_library: dict[CodeType, bool] = {}
_roots: list[str] = [_HERE + os.sep, os.path.dirname(os.__file__) + os.sep, "<frozen"]


def add_library(path: str) -> None:
    """Frames of files below `path` are not the user's."""
    _roots.append(path.rstrip(os.sep) + os.sep)
    _library.clear()


def is_library(code: CodeType) -> bool:
    """Whether a frame belongs to torch, the standard library, an installed package, or us."""
    known = _library.get(code)
    if known is None:
        name = code.co_filename
        known = "site-packages" in name or "dist-packages" in name or name.startswith(tuple(_roots))
        _library[code] = known
    return known


def user_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame of user code, from `depth` frames above the caller on."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and is_library(frame.f_code):
        frame = frame.f_back
    return frame


def describe(code: CodeType, line: int) -> str:
    """`file:line:function`, the form in which every place travels."""
    function = getattr(code, "co_qualname", code.co_name)
    return f"{code.co_filename}:{line}:{function}"
