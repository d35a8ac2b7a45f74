"""Which line of the user's code is at work: the innermost frame that is neither torch's nor ours."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from rankscope.base import user_code

_library: dict[str, bool] = {}
_folders: list[str] = [os.path.dirname(os.__file__)]


def add_library(path: str) -> None:
    """Frames of files below `path` are not the user's."""
    _folders.append(path)
    _library.clear()


def is_library(code: CodeType) -> bool:
    """Whether a frame belongs to torch, the standard library, an installed package, or us."""
    # By file: code objects of different files may be equal, and hashing one takes as long as it is large.
    file = code.co_filename
    known = _library.get(file)
    if known is None:
        known = _library[file] = user_code.is_library(file, tuple(_folders))
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
