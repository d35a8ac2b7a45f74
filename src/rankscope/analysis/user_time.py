"""Time that user code takes by itself: in Python, asleep, or in hooks and callbacks, by function."""

from __future__ import annotations

from collections import Counter as Counted
from dataclasses import dataclass, field

import numpy as np

from rankscope.analysis import timeline
from rankscope.analysis.facts import Facts, Ints, Mask
from rankscope.analysis.hot_code import states
from rankscope.analysis.sample_state import BLOCKED, NATIVE, PYTHON
from rankscope.analysis.stacks import Code, Place, Stack

NOT_CODE = (
    timeline.DATA,
    timeline.CHECKPOINT,
    timeline.EVALUATION,
    timeline.LOGGING,
    timeline.COMMUNICATION,
)
"""Phases with detectors of their own."""
MODES = ("__torch_dispatch__", "__torch_function__")
"""Functions through which torch hands its operators to a mode or a tensor class of the user's."""
LONG_NS = 100_000_000
"""A segment of this length has samples enough (two at 20 Hz) to be judged by its own."""


@dataclass(slots=True)
class FunctionTime:
    """The time of one function of user code on one rank."""

    place: Place
    """Its heaviest line."""
    component: str
    """The outermost function of user code below the training loop: what the user would look for."""
    ns: float = 0.0
    """Of the window, estimated from its share of each phase's samples."""
    samples: int = 0
    blocked: int = 0
    """Samples that found it blocked (not on a CPU)."""
    hook: int = 0
    """Samples in which torch had called it as a hook or callback."""
    phases: Counted[str] = field(default_factory=Counted)
    """Phase -> ns of its samples."""
    lines: Counted[Place] = field(default_factory=Counted)
    """Line -> ns of its samples."""
    indices: list[int] = field(default_factory=list)
    """Its samples among those of the rank."""


def user_functions(facts: Facts, position: int) -> dict[Code, FunctionTime]:
    """For each function of user code the time in which it, and not torch below it, kept the rank."""
    return facts.once(_user_functions, position)


def _user_functions(facts: Facts, position: int) -> dict[Code, FunctionTime]:
    samples = facts.samples(position)
    state = states(facts, position)
    segment = facts.activities.segment[position]
    own = facts.timelines[position]
    names = facts.phases(position)
    found: dict[Code, FunctionTime] = {}
    in_window = (samples.time_ns >= facts.begin) & (samples.time_ns <= facts.end)
    scale = _scales(facts, position, in_window & (segment >= 0))
    for index in np.flatnonzero(in_window).tolist():
        at = int(segment[index])
        if at < 0 or int(own.segments["collective"][at]) >= 0 or int(own.segments["detail"][at]) != 0:
            continue
        phase = str(names[at])
        if phase in NOT_CODE:
            continue
        stack = samples.stack[index]
        place = _responsible(facts, stack, int(state.state[index]), bool(state.hook[index]), phase)
        if place is None:
            continue
        outer = next((f for f in stack.user if f.code not in facts.activities.loop), place)
        # Between the phases all that one call of the loop does is one thing, however many functions it is made of.
        code = outer.code if phase == timeline.OTHER else place.code
        entry = found.get(code)
        if entry is None:
            entry = found[code] = FunctionTime(place, outer.function)
        entry.ns += float(samples.weight_ns[index]) * scale[phase]
        entry.samples += 1
        entry.blocked += int(state.state[index]) == BLOCKED
        entry.hook += bool(state.hook[index])
        entry.phases[phase] += int(samples.weight_ns[index])
        entry.lines[place] += int(samples.weight_ns[index])
        entry.indices.append(index)
    for entry in found.values():
        entry.place = entry.lines.most_common(1)[0][0]
    return found


def _scales(facts: Facts, position: int, chosen: Mask) -> dict[str, float]:
    """Phase -> its exact time in the window over the weight of its samples (`chosen`).

    What share of a phase a function has is all that samples have to say (stratified sampling): a function cannot take
    longer than the phase that it runs in.
    """
    samples = facts.samples(position)
    names, mask = facts.phases(position), facts.in_window(position)
    lengths = facts.timelines[position].durations()
    found = {}
    of_sample = names[facts.activities.segment[position]]
    for phase in np.unique(of_sample[chosen]).tolist():
        weight = float(samples.weight_ns[chosen & (of_sample == phase)].sum())
        found[str(phase)] = float(lengths[mask & (names == phase)].sum()) / weight if weight else 0.0
    return found


def _responsible(facts: Facts, stack: Stack, state: int, hook: bool, phase: str) -> Place | None:
    """The innermost user line when user code itself takes the time at a sample; None where torch computes for it."""
    if not stack.frames:
        return None
    user = stack.user
    if not user:
        return None
    if any(f.function.rpartition(".")[2] in MODES for f in user):
        return None  # an operator, carried out by a mode of the user's: a device of a kind
    # A comprehension or a lambda is a part of the function that it stands in.
    user = tuple(f for f in user if not f.function.endswith(">") or f.function == "<module>") or user
    if hook:
        return user[-1]
    if stack.ends_in_torch:
        return None
    if state in (BLOCKED, PYTHON):
        return user[-1]
    if state == NATIVE and phase == timeline.OTHER and user[-1].code not in facts.activities.loop:
        # Native code that a function outside of forward and backward calls: numpy, torch operators, a library.
        return user[-1]
    return None


def user_code_share(facts: Facts, position: int) -> float:
    """Share of the window that user code takes on one rank beyond what it takes on the rank with least of it."""
    totals = [sum(f.ns for f in user_functions(facts, p).values()) for p in range(facts.size)]
    return (totals[position] - min(totals)) / facts.span_ns if facts.span_ns else 0.0


def without_function(facts: Facts, position: int, durations: Ints, entry: FunctionTime) -> Ints:
    """Segment durations without the time of one function.

    Long segments are judged by their own samples; of short ones, which mostly have none, each phase gives its share.
    """
    samples = facts.samples(position)
    segment = facts.activities.segment[position]
    own = facts.timelines[position]
    chosen = set(entry.indices)
    lengths = own.durations()
    long = lengths >= LONG_NS
    of_segment: Counted[int] = Counted()
    hot_of_segment: Counted[int] = Counted()
    short: Counted[int] = Counted()
    hot_short: Counted[int] = Counted()
    in_window = (samples.time_ns >= facts.begin) & (samples.time_ns <= facts.end)
    for index in np.flatnonzero(in_window & (segment >= 0)).tolist():
        at, weight = int(segment[index]), int(samples.weight_ns[index])
        if long[at]:
            of_segment[at] += weight
            hot_of_segment[at] += weight if index in chosen else 0
        else:
            phase = int(own.segments["phase"][at])
            short[phase] += weight
            hot_short[phase] += weight if index in chosen else 0
    for at, weight in hot_of_segment.items():
        durations[at] = int(durations[at] * (1 - weight / of_segment[at]))
    mask = facts.work(position) & ~long
    for phase, weight in hot_short.items():
        if weight:
            some = mask & (own.segments["phase"] == phase)
            durations[some] = (durations[some] * (1 - weight / short[phase])).astype(np.int64)
    return durations
