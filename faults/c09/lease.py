"""The machine's lease; a machine is taken back when its time is over."""

from __future__ import annotations

import os
import time

# Seconds granted by the scheduler, by local rank.
GRANTED = {0: 3600.0, 1: 3.0}


class Lease:
    def __init__(self, local_rank: int) -> None:
        self.ends = time.monotonic() + GRANTED.get(local_rank, 3600.0)

    def renew_or_leave(self) -> None:
        if time.monotonic() > self.ends:
            os._exit(9)
