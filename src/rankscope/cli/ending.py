"""Ending a command with everything that it started: first asked, then forced."""

from __future__ import annotations

import signal
import subprocess
import time

from rankscope.base.rundir import RunDir
from rankscope.cli.family import Member, family
from rankscope.cli.waiting import ended_within

GRACE_S = 10.0
"""How long the command and its processes may take to end after SIGTERM; torchrun would wait 30 s for its ranks."""
KILLED_S = 5.0
"""How long the kernel may take for a process that was killed; longer is one that waits for a device or a disk."""
LOOK_EVERY_S = 0.2


def end_command(child: subprocess.Popen[bytes], run: RunDir | None) -> None:
    """End the command and all its processes; what it left behind is ended as well where it has ended before.

    SIGTERM goes to the command, which ends its processes in its own way. Those that it leaves behind get one of their
    own. After GRACE_S whatever is still there is killed.
    """
    known = _family(child, run)
    child.send_signal(signal.SIGTERM)  # none where it has been waited for
    asked: set[Member] = set()
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        ended = ended_within(child, LOOK_EVERY_S) is not None
        known |= _family(child, run)
        left = {member for member in known if member.alive}
        if ended and not left:
            return
        if ended:
            for member in left - asked:
                member.send(signal.SIGTERM)
            asked |= left
            time.sleep(LOOK_EVERY_S)
    _kill(child, run, known)


def _kill(child: subprocess.Popen[bytes], run: RunDir | None, known: set[Member]) -> None:
    """Until nobody is left: a process may start another one while it is found."""
    deadline = time.monotonic() + KILLED_S
    while time.monotonic() < deadline:
        known |= _family(child, run)
        left = {member for member in known if member.alive}
        if child.poll() is not None and not left:
            return
        child.kill()
        for member in left:
            member.send(signal.SIGKILL)
        ended_within(child, LOOK_EVERY_S)
        time.sleep(LOOK_EVERY_S / 4)


def _family(child: subprocess.Popen[bytes], run: RunDir | None) -> set[Member]:
    return family(child.pid if child.poll() is None else None, run)
