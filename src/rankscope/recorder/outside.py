"""Ranks that stand still and whose own sampler is silent: looked at from outside, while the rings are read on."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.base.outside import Look, Seen
from rankscope.recorder.own_records import OwnRecords
from rankscope.records.host import OutsideStack
from rankscope.records.record import sources

LIMIT_NS = 3_000_000_000
"""For one rank; py-spy needs some 10 ms where the machine is not crowded."""
MOST_LOOKS = 4
"""Ranks looked at in one stall."""
LAYOUT = sources(OutsideStack)


class OutsideLooks:
    """`begin` starts the looks, `done` writes what they have seen; neither waits."""

    def __init__(self, own: OwnRecords) -> None:
        self._own = own
        self._looks: list[Look] = []

    @property
    def busy(self) -> bool:
        """Whether a look is going on."""
        return bool(self._looks)

    def begin(self, pids: Sequence[int]) -> None:
        """Look at the first few of these processes."""
        self._looks = [Look(pid, LIMIT_NS) for pid in pids[:MOST_LOOKS]]

    def done(self, now: int) -> bool:
        """Whether all looks have come to their end, and are written."""
        if not all([look.done() for look in self._looks]):  # each of them has to go on: no generator
            return False
        for look in self._looks:
            self._write(look.seen(), now)
        self._looks = []
        return True

    def close(self) -> None:
        """Give up what is going on."""
        for look in self._looks:
            look.close()
        self._looks = []

    def _write(self, seen: Seen, now: int) -> None:
        if seen.state in ("X", "Z"):
            return  # its end is told by another record
        frames = tuple(reversed(seen.stack.frames)) if seen.stack is not None else ()
        known = {"state": ord(seen.state), "holds_lock": seen.holds_lock, "runs": seen.runs, "known": bool(frames)}
        word = sum(int(value) << LAYOUT[field].shift for field, value in known.items())
        for depth, text in enumerate(frames or (seen.why_no_stack,)):
            self._own.add(OutsideStack.code, text, now, seen.pid, depth, word)
