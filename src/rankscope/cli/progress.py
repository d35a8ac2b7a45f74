"""A line on stderr for work that takes its time, so that nobody thinks it hangs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_AFTER_S = 2.0
AGAIN_AFTER_S = 15.0


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Say what is being done once it has taken FIRST_AFTER_S, and every AGAIN_AFTER_S how long it has taken."""
    begin = time.monotonic()
    done = threading.Event()

    def tell() -> None:
        pause = FIRST_AFTER_S
        while not done.wait(pause):
            pause = AGAIN_AFTER_S
            print(f"rankscope: {doing} ({time.monotonic() - begin:.0f} s so far)", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


@contextmanager
def counting(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """As `working`, with how many of `total` are done, as the function that it gives is told; on a terminal one line
    that is written over."""
    begin = last = time.monotonic()
    terminal = sys.stderr.isatty()
    shown = False

    def tell(done: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        pause = 0.2 if terminal else AGAIN_AFTER_S
        if now - begin < FIRST_AFTER_S or (now - last < pause and shown):
            return
        last, shown = now, True
        filled = round(20 * done / total)
        bar = f"[{'#' * filled}{'.' * (20 - filled)}] " if terminal else ""
        line = f"rankscope: {doing} {bar}{done:,} of {total:,} ({now - begin:.0f} s so far)"
        print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if terminal and shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
