"""Renders tiles of a fractal, one after the other, on the core given as the first argument."""

from __future__ import annotations

import os
import sys
import time


def tile(left: float, top: float, side: int = 64) -> int:
    total = 0
    for row in range(side):
        for column in range(side):
            c = complex(left + column / side, top + row / side)
            z, count = 0j, 0
            while abs(z) < 2.0 and count < 60:
                z, count = z * z + c, count + 1
            total += count
    return total


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(sys.argv[1]) % len(cores)]})
    parent, latest = os.getppid(), time.monotonic() + 180.0
    while os.getppid() == parent and time.monotonic() < latest:
        tile(-1.5, -0.5)


if __name__ == "__main__":
    main()
