"""What rankscope tells on the terminal of a run that hangs, and when; the clock comes from outside."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scoring import Expected, ranks_match

from rankscope.base.causes import CAUSES

TOLD_AFTER_S = 2.0
"""A run goes on for so long after its first failure was told: what is told with it still counts."""
GIVEN_UP_AFTER_S = 60.0
"""A stall of which no failure is told is ended after so long."""
SAME_STALL_S = 5.0
"""Two lines about one stall agree on its begin within this; later begins are of another stall."""
NO_PROGRESS = re.compile(r"rankscope: no progress for (.+?), after \d+ steps")
FINDING = re.compile(r"rankscope: (?:critical|warning), ([a-z-]+)(?:, (all ranks|ranks? [0-9][0-9, -]*))?[,:]")
UNITS_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Told:
    """A failure that was told while the run went on."""

    cause: str
    ranks: tuple[int, ...]
    all_ranks: bool
    at_s: float

    def right(self, expected: Expected) -> bool:
        """Whether it names an accepted cause and the right ranks."""
        named = {"ranks": self.ranks, "all_ranks": self.all_ranks}
        return self.cause in expected.causes and ranks_match(named, expected)


class Stall:
    """Fed with each line of a run as it comes; says since when the run stands still and when to end it."""

    def __init__(self) -> None:
        self.begin_s: float | None = None
        """As rankscope's own line dates it: late by the time that the line took to the terminal, a second or two."""
        self.told: list[Told] = []

    def note(self, line: str, now_s: float) -> None:
        """A line of the terminal, of whoever wrote it."""
        stopped = NO_PROGRESS.search(line)
        if stopped is not None:
            begin = now_s - seconds(stopped[1])
            same = self.begin_s is not None and begin < self.begin_s + SAME_STALL_S
            self.begin_s = min(begin, self.begin_s) if same and self.begin_s is not None else begin
        found = FINDING.search(line)
        if found is not None and found[1] in CAUSES and CAUSES[found[1]].kind == "failure":
            who = found[2] or ""
            self.told.append(Told(found[1], numbers(who), who == "all ranks", now_s))

    def over(self, now_s: float) -> bool:
        """Whether the run has been watched for long enough."""
        if self.told:
            return now_s >= self.told[0].at_s + TOLD_AFTER_S
        return self.begin_s is not None and now_s >= self.begin_s + GIVEN_UP_AFTER_S


def seconds(text: str) -> float:
    """`5.94 s`, `4 min 05 s` or `2 h 10 min` in seconds."""
    parts = re.findall(r"([0-9.]+) (ms|s|min|h)\b", text)
    if not parts:
        raise ValueError(f"{text!r} is no time: write it as `5.94 s`")
    return sum(float(number) * UNITS_S[unit] for number, unit in parts)


def numbers(text: str) -> tuple[int, ...]:
    """The ranks in `rank 1` or `ranks 0-3, 7`; none in `all ranks`."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?", text)
    return tuple(rank for first, last in ranges for rank in range(int(first), int(last or first) + 1))
