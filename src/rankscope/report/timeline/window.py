"""Which part of a run is drawn: the steps that were asked for, all of them, or the newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.base.errors import UserError
from rankscope.report.timeline.parts import Ints, Mask

MOST_SLICES: Final = 300_000
"""Drawn where nobody chose the steps: a file of a few MB, which every browser opens in a second or two."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps on the common clock, by number."""

    number: Ints
    begin_ns: Ints
    """When the first rank began it."""
    end_ns: Ints
    """When the last rank ended it."""

    def between(self, first: int | None, last: int | None) -> tuple[int, int] | None:
        """(begin, end) of the steps from `first` to `last` that are known; None where none is. No bound: None."""
        low = 0 if first is None else int(np.searchsorted(self.number, first))
        high = len(self.number) if last is None else int(np.searchsorted(self.number, last, side="right"))
        if low >= high:
            return None
        return int(self.begin_ns[low:high].min()), int(self.end_ns[low:high].max())

    def listed(self) -> str:
        """`are steps 0 to 499 and 9,000 to 9,999`: of a long run the middle is not read."""
        first = self.number[np.append(True, np.diff(self.number) > 1)].tolist()
        last = self.number[np.append(np.diff(self.number) > 1, True)].tolist()
        parts = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in zip(first, last, strict=True)]
        several = len(self.number) > 1
        shown = " and ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        return f"{'are steps' if several else 'is step'} {shown}"


NO_STEPS = Steps(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def steps_of(by_rank: Sequence[tuple[Ints, Ints, Ints]]) -> Steps:
    """Of (numbers, begins, ends) of each rank. A step that some ranks did not come to counts as well."""
    if not any(len(number) for number, _, _ in by_rank):
        return NO_STEPS
    number, begin, end = (np.concatenate([rank[i] for rank in by_rank]) for i in range(3))
    unique, inverse = np.unique(number, return_inverse=True)
    begins = np.full(len(unique), np.iinfo(np.int64).max)
    ends = np.full(len(unique), np.iinfo(np.int64).min)
    np.minimum.at(begins, inverse, begin)
    np.maximum.at(ends, inverse, end)
    return Steps(unique, begins, ends)


@dataclass(frozen=True, slots=True)
class Window:
    """What is drawn: everything that touches it, unabridged."""

    begin_ns: int
    end_ns: int
    first_step: int | None
    last_step: int | None
    left_out: int = 0
    """Slices before it that nobody asked to leave out."""

    def touched(self, start_ns: Ints, end_ns: Ints) -> Mask:
        """Which of many spans are in it."""
        return np.asarray((end_ns >= self.begin_ns) & (start_ns <= self.end_ns), bool)


def chosen_window(steps: Steps, asked: tuple[int, int | None], whole: tuple[int, int]) -> Window:
    """The window of the steps from the first of `asked` up to, not with, the second. Raises UserError for none."""
    if not len(steps.number):
        raise UserError("--steps: no finished step is known here; leave it out to see everything")
    first, stop = asked
    last = None if stop is None else stop - 1
    found = steps.between(first, last)
    if found is None:
        wanted = f"{first}:{'' if stop is None else stop}"
        raise UserError(f"--steps {wanted}: there is no such step here; there {steps.listed()}")
    inside = steps.number[(steps.number >= first) & (steps.number <= (steps.number[-1] if last is None else last))]
    begin, end = found
    # Whatever was there before the first step and after the last one is part of the whole.
    begin = whole[0] if inside[0] == steps.number[0] else begin
    end = whole[1] if inside[-1] == steps.number[-1] else end
    return Window(begin, end, int(inside[0]), int(inside[-1]))


def usual_window(steps: Steps, starts_ns: Ints, weight: Ints | None, whole: tuple[int, int]) -> Window:
    """Everything, or, where that is more than MOST_SLICES, the newest steps (at least one) that are no more.

    `starts_ns`: of all slices, or of some of them, each of which stands for `weight` ones; in any order.
    """
    weights = np.ones(len(starts_ns), np.int64) if weight is None else weight
    known = (int(steps.number[0]), int(steps.number[-1])) if len(steps.number) else (None, None)
    if int(weights.sum()) <= MOST_SLICES:
        return Window(*whole, *known)
    newest = np.argsort(-starts_ns, kind="stable")
    fits = int(np.searchsorted(np.cumsum(weights[newest]), MOST_SLICES, side="right"))
    begin = int(starts_ns[newest[max(0, fits - 1)]])
    first = None
    if len(steps.number):
        at = min(int(np.searchsorted(steps.begin_ns, begin)), len(steps.number) - 1)
        begin, first = int(steps.begin_ns[at]), int(steps.number[at])
    return Window(begin, whole[1], first, known[1], int(weights[starts_ns < begin].sum()))
