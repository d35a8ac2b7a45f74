"""Waiting for a process or a while: without waking up in between, and for signals that are meant for the command."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


def ended_within(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code of a child that ends within a time, else None.

    `Popen.wait` with a time-out wakes 20 times a second, which takes as much CPU time as the recorder; the kernel can
    say it (Linux 5.3).
    """
    try:
        handle = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return child.poll()


class Signals:
    """While entered, the signals by which a user ends us go to the command, and are remembered."""

    def __init__(self) -> None:
        self.received: int | None = None
        """The last one."""
        self.child: subprocess.Popen[bytes] | None = None
        """The command, while there is one."""

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handlers = {number: signal.signal(number, self._forward) for number in (signal.SIGTERM, signal.SIGHUP)}
        self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, seconds: float) -> bool:
        """Wait; True at once where a signal has come or comes."""
        return bool(select.select([self._reading], [], [], max(0.0, seconds))[0])

    def _note(self, number: int) -> None:
        self.received = number
        with suppress(BlockingIOError):  # where the pipe is full of them, whoever waits is awake
            os.write(self._writing, b"!")

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self._note(number)
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C reaches the command by itself, from the terminal that we share; we stay for the report."""
        self._note(number)
        if not _in_foreground():
            self._forward(number, frame)


def _in_foreground() -> bool:
    """Whether a terminal sends Ctrl-C to our process group, which is the command's too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
