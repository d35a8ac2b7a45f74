"""Finds start-up work that is repeated, or one function that dominates it."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, MATERIAL_EVERYWHERE, CannotExamine, Detector, worst_ranks
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Code, Place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.training import Call, Step

NOTICEABLE_NS = 1_000_000_000
"""Start-up work below a second is nobody's problem, however short the run."""
DOMINATES = 0.5
"""Share of the start that one function must take to be called what the start is spent on."""


class SlowStart(Detector):
    """Work before the first step is done several times over, or one function dominates it.

    ## What it is
    Weights initialised again and again by parents of parents, a dataset indexed by every rank, a cache built anew.

    ## What shows it
    Initialisation functions that ran repeatedly on the same tensors, and the time of the repetitions; or stack samples
    before the first step that mostly lie in one function of user code.

    ## What else looks like it
    Imports, the rendezvous, the first compilation: they are not counted.

    ## What to do
    Initialise once, at the leaves; build on the meta device and load the checkpoint into it; cache what does not
    change from run to run.
    """

    name = "slow-start"
    needs = (Step,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not facts.all_steps:
            raise CannotExamine("no step was finished, so it is not known when the start ended")
        found = [_start(facts, p) for p in range(facts.size)]
        repeated = np.array([f.repeated_ns for f in found])
        hot = np.array([f.hot_ns for f in found])
        run = max(1, facts.finished_ns - min(f.begin for f in found))
        cost = np.maximum(repeated, hot)
        positions = worst_ranks(cost, NOTICEABLE_NS)
        if not positions:
            return
        p = max(positions, key=lambda q: cost[q])
        by_repetition = repeated[p] >= NOTICEABLE_NS and repeated[p] >= MATERIAL * run
        by_function = hot[p] >= DOMINATES * found[p].length and hot[p] >= 3 * MATERIAL_EVERYWHERE * run
        if not by_repetition and not by_function:
            return
        ns = float(repeated[p] if by_repetition else hot[p])
        place = found[p].hot or found[p].site
        share = ns / run
        what = (
            f"weights are initialised {found[p].times:.1f} times over"
            if by_repetition
            else f"{place.short if place else 'one function'} dominates the start"
        )
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9 if by_repetition else 0.7,
            title=f"start-up: {what}, {wording.ms(ns)}{wording.at(place) if by_repetition else ''}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase=None,
            component="weight initialisation" if by_repetition else (place.function if place else "start-up"),
            location=wording.location(place),
            first_step=0,
            last_step=0,
            cost=Cost(None, share, share),
            evidence=(
                Evidence(
                    "from the start of the process to the end of its first step",
                    found[p].length / 1e9,
                    "s",
                    facts.numbers(positions),
                ),
                *(
                    (
                        Evidence("initialisation calls per tensor", found[p].times, "count"),
                        Evidence("time in repeated initialisation", float(repeated[p]) / 1e9, "s"),
                    )
                    if by_repetition
                    else ()
                ),
                *(
                    (Evidence(f"time in {at_function.short}", float(hot[p]) / 1e9, "s"),)
                    if (at_function := found[p].hot) is not None and hot[p]
                    else ()
                ),
            ),
            next=(
                "initialise each parameter once: at the leaves, not again in every parent"
                if by_repetition
                else "do this once and cache its result, or do it while the ranks already train",
                *(["build the model on the meta device when a checkpoint is loaded anyway"] if by_repetition else []),
            ),
        )


class _Start:
    """What is known of the start of one rank; times in ns."""

    __slots__ = ("begin", "hot", "hot_ns", "length", "repeated_ns", "site", "times")

    def __init__(self) -> None:
        self.begin = self.length = 0
        self.repeated_ns = self.hot_ns = 0.0
        self.times = 0.0
        self.site: Place | None = None
        self.hot: Place | None = None


def _start(facts: Facts, position: int) -> _Start:
    """What happened on a rank before the end of its first step."""
    found = _Start()
    process = facts.ranks[position].process
    steps = facts.rows(Step, position, window=False)
    first_end = int((steps["time_ns"] + steps["duration_ns"])[0]) if len(steps) else 0
    found.begin = process.started_ns or first_end
    found.length = max(0, first_end - found.begin)
    calls = facts.rows(Call, position, window=False)
    names = [facts.tables.name(process.pid, int(n)) for n in calls["name"]]
    init = calls[np.array([n.startswith("torch.nn.init.") for n in names], bool)] if len(calls) else calls
    if len(init):
        found.repeated_ns = float(init["c"].sum())
        total = float(init["duration_ns"].sum())
        fresh = max(1.0, total - found.repeated_ns)
        found.times = total / fresh
        heaviest = init[int(np.argmax(init["c"]))]
        found.site = facts.place(position, int(column(np.array([heaviest]), Call, "site")[0]))
    _hottest(facts, position, first_end, found)
    return found


def _hottest(facts: Facts, position: int, first_end: int, found: _Start) -> None:
    """The user function (with all it calls) that most samples before the first step were taken in."""
    samples = facts.samples(position)
    loop = facts.activities.loop
    weights: Counted[Code] = Counted()
    places: dict[Code, Counted[Place]] = {}
    for index in np.flatnonzero(samples.time_ns < first_end).tolist():
        stack = samples.stack[index]
        if any("importlib" in f.file or f.function in ("init_process_group", "rendezvous") for f in stack.frames):
            continue
        if (
            int(facts.activities.segment[position][index]) >= 0
            and facts.timelines[position].segments["kind"][facts.activities.segment[position][index]] != 0
        ):
            continue  # inside a phase: a first forward or a wait is not start-up work
        mine = [f for f in stack.user if f.code not in loop and f.function != "<module>"]
        for frame in {f.code: f for f in mine}.values():
            weights[frame.code] += int(samples.weight_ns[index])
            places.setdefault(frame.code, Counted())[frame] += int(samples.weight_ns[index])
    if not weights:
        return
    most = weights.most_common(1)[0][1]
    # The innermost of the functions that hold nearly all of it (a function holds the time of what it calls).
    near = [code for code, ns in weights.items() if ns >= 0.9 * most]
    code = min(near, key=lambda c: (len(places[c]), -weights[c]))
    found.hot, found.hot_ns = places[code].most_common(1)[0][0], float(weights[code])
