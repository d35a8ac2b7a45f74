"""Where a rank's time goes inside a set of segments: the function and line, from the stack samples."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.sample_state import BLOCKED, States, states_of
from rankscope.analysis.stacks import Code, Place, Stack, hottest, innermost_user

OUTSIDE = 0.2
"""Share of the samples below the training loop's own lines from which on these are not named: Python code shorter than
the interpreter's switch interval (5 ms) is mostly met where it ends, which may be a line of the loop."""


@dataclass(frozen=True, slots=True)
class HotPlace:
    """The function in which most of the time of some samples was spent."""

    place: Place
    """The innermost user line of the heaviest function."""
    share: float
    """Of the samples that were looked at."""
    blocked: float
    """Of the samples in that function, how many found it blocked (not on a CPU)."""
    samples: int
    component: str
    """The outermost function of user code that is not the training loop: what the user would look for."""


def states(facts: Facts, position: int) -> States:
    """States of a rank's samples."""
    return facts.once(_states, position)


def _states(facts: Facts, position: int) -> States:
    return states_of(facts.tables, facts.ranks[position].pid, facts.samples(position))


def samples_in(facts: Facts, position: int, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Indices of a rank's samples that fall into masked segments."""
    at = facts.activities.segment[position]
    return np.flatnonzero((at >= 0) & mask[np.maximum(at, 0)]) if len(mask) else np.empty(0, np.int64)


def hot_place(
    facts: Facts,
    position: int,
    indices: NDArray[np.int64],
    *,
    skip_loop: bool = True,
    where: Callable[[Stack], Place | None] = innermost_user,
) -> HotPlace | None:
    """The heaviest user function among some samples of a rank; None where no sample shows user code.

    With `skip_loop`, lines of the training loop itself only count where nothing below them does.
    """
    samples = facts.samples(position)
    state = states(facts, position).state
    tally = _Tally()
    for index in indices.tolist():
        stack = samples.stack[index]
        place = where(stack)
        if place is None:
            continue
        component = next((f for f in stack.user if f.code not in facts.activities.loop), place)
        tally.add(place, int(samples.weight_ns[index]), state[index] == BLOCKED, component.function)
    return tally.hottest(skip=facts.activities.loop if skip_loop else set())


def hot_place_of_workers(facts: Facts, position: int) -> HotPlace | None:
    """The heaviest user function in the loader workers of a rank."""
    tally = _Tally()
    for pid, samples in zip(facts.ranks[position].workers, facts.worker_samples(position), strict=True):
        state = states_of(facts.tables, pid, samples).state if len(samples) else np.empty(0, np.int64)
        for index, stack in enumerate(samples.stack):
            place = innermost_user(stack) if _in_worker_loop(stack) else None
            if place is None:
                continue
            component = next((f for f in _below_fetch(stack) if stack.is_user(f)), place)
            tally.add(place, int(samples.weight_ns[index]), state[index] == BLOCKED, component.function)
    return tally.hottest()


def last_place(facts: Facts, position: int) -> Place | None:
    """The innermost line of the user's in the last stack sample of a rank; None without any."""
    samples = facts.samples(position)
    user = next((stack.user for stack in reversed(samples.stack) if stack.user), ())
    return user[-1] if user else None


class _Tally:
    """Samples by the place in user code that they were taken in."""

    def __init__(self) -> None:
        self._places: list[tuple[Place, int]] = []
        self._samples: Counted[Code] = Counted()
        self._blocked: Counted[Code] = Counted()
        self._components: dict[Code, Counted[str]] = {}

    def add(self, place: Place, weight_ns: int, blocked: bool, component: str) -> None:
        """Count one sample."""
        self._places.append((place, weight_ns))
        self._samples[place.code] += 1
        self._blocked[place.code] += bool(blocked)
        self._components.setdefault(place.code, Counted())[component] += 1

    def hottest(self, skip: Set[Code] = frozenset()) -> HotPlace | None:
        """The heaviest function; one of `skip` only where nearly all samples are in these."""
        kept = [(place, weight) for place, weight in self._places if place.code not in skip]
        whole = _weight(self._places)
        best = hottest(kept if _weight(kept) >= OUTSIDE * whole else self._places)
        if best is None:
            return None
        place, _ = best
        code = place.code
        return HotPlace(
            place,
            share=sum(weight for at, weight in self._places if at.code == code) / max(1, whole),
            blocked=self._blocked[code] / self._samples[code],
            samples=self._samples[code],
            component=self._components[code].most_common(1)[0][0],
        )


def _in_worker_loop(stack: Stack) -> bool:
    """Whether a loader worker makes a batch or waits for the next order; false while it starts."""
    return any(f.file.endswith("_utils/fetch.py") for f in stack.frames)


def _below_fetch(stack: Stack) -> tuple[Place, ...]:
    """The frames that the loader's fetch calls."""
    for index, frame in enumerate(stack.frames):
        if frame.file.endswith("_utils/fetch.py"):
            return stack.frames[index + 1 :]
    return stack.frames


def _weight(places: list[tuple[Place, int]]) -> int:
    return sum(weight for _, weight in places)
