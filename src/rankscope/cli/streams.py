"""Standard streams that may be closed, full, or without a reader."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, TextIO

from rankscope.base.errors import UserError


def prepare() -> None:
    """Make all three streams exist; words on standard error never fail, and standard output says where it does.

    A missing descriptor would be given to the next file that is opened, and the command's words would go there.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays open
    for name, number, kind in (("stdout", 1, _Output), ("stderr", 2, _Words)):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        if not isinstance(stream, _Stream):
            setattr(sys, name, kind(stream))


class _Stream:
    """A text stream with another `write` and `flush`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Words(_Stream):
    """What cannot be said is not said: the work goes on."""

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            # What lies in the buffer would fail again when Python ends, and change the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class _Output(_Stream):
    """What was asked for cannot be written: that is the user's to know."""

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> Exception:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if error.errno == errno.EPIPE:
            return error
        return UserError(f"standard output: cannot be written ({error.strerror}); write it to a file with room")
