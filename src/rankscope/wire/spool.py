"""Frames on disk while nobody has acknowledged them: one file a frame, whole or absent."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from rankscope.wire.frame import Frame, FrameError, decode, encode

PENDING = ".frame"
"""A frame that waits to be acknowledged."""
DONE = ".done"
"""The empty file that remains of the highest acknowledged frame, so that its number is not used again."""
DAMAGED = ".damaged"
"""A file that held no whole frame; kept for whoever wants to know why."""
DIGITS = 10
"""Of a number in a file name, so that names sort like numbers: a frame a second for 300 years."""


class SpoolFull(OSError):
    """The disk has no room for a frame; the caller still holds it and may try again."""


class Spool:
    """A folder of frames in the order of their numbers. One process writes; the reader may be another one."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.damaged = len(self._numbers(DAMAGED))
        """Files that were moved aside because they held no whole frame."""
        self._next = 1 + max((n for s in (PENDING, DONE, DAMAGED) for n in self._numbers(s)), default=0)

    @property
    def next_number(self) -> int:
        """The number after the highest one that was ever used here, acknowledged ones included."""
        return self._next

    @property
    def acknowledged(self) -> int:
        """The highest number that a store has acknowledged; 0: none."""
        return max(self._numbers(DONE), default=0)

    def put(self, frame: Frame) -> Path:
        """Keep a frame; after the return it survives the end of this process, not that of the machine."""
        if frame.number < self._next:
            raise ValueError(f"frame number {frame.number} was used before; the next one is {self._next}")
        path = self._path(frame.number)
        self._write(path, encode(frame))
        self._next = frame.number + 1
        return path

    def pending(self) -> Iterator[tuple[int, Path]]:
        """Number and file of each frame that is not done, oldest first."""
        for number in sorted(self._numbers(PENDING)):
            yield number, self._path(number)

    def pending_bytes(self) -> int:
        """How much waits to be acknowledged."""
        total = 0
        for path in self.folder.glob(f"*{PENDING}"):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def load(self, number: int) -> Frame:
        """One pending frame. A damaged file is moved aside as `.damaged`, counted, and raises FrameError."""
        path = self._path(number)
        try:
            frame = decode(path.read_bytes(), str(path))
            if frame.number != number:
                raise FrameError(str(path), 8, f"the frame's number is {frame.number}")
        except FrameError:
            self.set_aside(number)
            raise
        return frame

    def set_aside(self, number: int) -> None:
        """Take a frame that cannot be used out of the way, keeping its bytes."""
        self._path(number).replace(self._path(number, DAMAGED))
        self.damaged += 1

    def done(self, number: int) -> None:
        """Forget an acknowledged frame. Needs no room on the disk; doing so twice is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._path(number).replace(self._path(number, DONE))
            os.truncate(self._path(number, DONE), 0)
        for older in sorted(self._numbers(DONE))[:-1]:
            self._path(older, DONE).unlink(missing_ok=True)

    def _path(self, number: int, suffix: str = PENDING) -> Path:
        return self.folder / f"{number:0{DIGITS}}{suffix}"

    def _numbers(self, suffix: str) -> list[int]:
        return [int(path.stem) for path in self.folder.glob(f"*{suffix}") if path.stem.isdigit()]

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_suffix(".writing")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise SpoolFull(error.errno, f"no room for {path.name} ({len(data)} bytes)", str(path)) from error
            raise
