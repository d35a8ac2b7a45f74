"""Hard-negative mining: a neighbour graph, and the candidates of recent steps."""

from __future__ import annotations

import random
from collections import deque


class NeighbourGraph:
    """Neighbour lists of every item, `degree` identifiers each."""

    def __init__(self, items: int, degree: int) -> None:
        rng = random.Random(9)
        self.neighbours = [[rng.randrange(items)] * degree for _ in range(items)]

    def near(self, item: int) -> list[int]:
        return self.neighbours[item % len(self.neighbours)]


class Candidates:
    """The candidate pairs of the last `window` steps."""

    def __init__(self, window: int) -> None:
        self.recent: deque[list[list[int]]] = deque(maxlen=window)

    def propose(self, step: int, count: int) -> list[list[int]]:
        pairs = [[step, number] for number in range(count)]
        self.recent.append(pairs)
        return pairs
