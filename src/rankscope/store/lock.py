"""Only one process may have an embedded store open: whoever comes second is told who has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from rankscope.base.errors import UserError


class FolderLock:
    """Holds `folder/rankscope.lock` until `release` or the end of the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / "rankscope.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 32).decode() or "unknown"
            os.close(self._handle)
            raise UserError(f"the store {folder} is open in process {holder}: wait for it to end, or end it") from None
        with contextlib.suppress(OSError):  # on a full disk nobody learns who holds it, but it is held
            os.ftruncate(self._handle, 0)
            os.write(self._handle, b"%d" % os.getpid())

    def release(self) -> None:
        os.close(self._handle)


def holder(folder: Path) -> int | None:
    """The process that has the store in a folder open, or None."""
    try:
        handle = os.open(folder / "rankscope.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(handle, 32).decode() or 0)
    finally:
        os.close(handle)
    return None
