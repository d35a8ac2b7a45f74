"""The file that Python's fault handler leaves of a process that a signal ended."""

from __future__ import annotations

import re
from pathlib import Path

MOST_FRAMES = 50
_FRAME = re.compile(rb'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


def read_fault(ring: Path) -> list[str]:
    """The frames of the thread that died, innermost first, as `file:line:function`; [] where nothing was written.

    `ring`: the process's ring, beside which the file lies; the file is removed.
    """
    file = ring.with_suffix(".fault")
    try:
        text = file.read_bytes()
        file.unlink()
    except OSError:
        return []
    found = _FRAME.findall(text)[:MOST_FRAMES]
    return [b":".join(parts).decode("utf-8", "replace") for parts in ((f, line, name) for f, line, name in found)]
