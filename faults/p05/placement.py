"""Places the process on the cores that the scheduler's table gives it."""

from __future__ import annotations

import os


def bind(slot: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[slot % len(cores)]})
