"""Where a rank's time goes inside a set of segments: the function and line, from the stack samples."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable
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
    loop = facts.activities.loop if skip_loop else set()
    places: list[tuple[Place, int]] = []
    blocked: Counted[Code] = Counted()
    seen: Counted[Code] = Counted()
    outer: dict[Code, Counted[str]] = {}
    for index in indices.tolist():
        place = where(samples.stack[index])
        if place is None:
            continue
        weight = int(samples.weight_ns[index])
        places.append((place, weight))
        seen[place.code] += 1
        blocked[place.code] += state[index] == BLOCKED
        component = next((f for f in samples.stack[index].user if f.code not in facts.activities.loop), place)
        outer.setdefault(place.code, Counted())[component.function] += 1
    outside_loop = [(p, w) for p, w in places if p.code not in loop]
    best = hottest(outside_loop if _weight(outside_loop) >= OUTSIDE * _weight(places) else places)
    if best is None:
        return None
    place, _ = best
    share = sum(w for p, w in places if p.code == place.code) / max(1, _weight(places))
    code = place.code
    return HotPlace(place, share, blocked[code] / seen[code], seen[code], outer[code].most_common(1)[0][0])


def hot_place_of_workers(facts: Facts, position: int) -> HotPlace | None:
    """The heaviest user function in the loader workers of a rank."""
    places: list[tuple[Place, int]] = []
    blocked: Counted[Code] = Counted()
    seen: Counted[Code] = Counted()
    outer: dict[Code, Counted[str]] = {}
    for pid, samples in zip(facts.ranks[position].workers, facts.worker_samples(position), strict=True):
        state = states_of(facts.tables, pid, samples).state if len(samples) else np.empty(0, np.int64)
        for index, stack in enumerate(samples.stack):
            if not _in_worker_loop(stack):
                continue
            place = innermost_user(stack)
            if place is None:
                continue
            places.append((place, int(samples.weight_ns[index])))
            seen[place.code] += 1
            blocked[place.code] += int(state[index]) == BLOCKED
            component = next((f for f in _below_fetch(stack) if stack.is_user(f)), place)
            outer.setdefault(place.code, Counted())[component.function] += 1
    best = hottest(places)
    if best is None:
        return None
    place, share = best
    code = place.code
    return HotPlace(place, share, blocked[code] / seen[code], seen[code], outer[code].most_common(1)[0][0])


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
