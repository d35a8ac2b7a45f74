"""A line on stderr for work that takes its time, so that nobody thinks it hangs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
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
