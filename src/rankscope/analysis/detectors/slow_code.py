"""Finds functions of the user's that take the time themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, MATERIAL_EVERYWHERE, SHARE_OF_WORST, CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Code
from rankscope.analysis.user_time import FunctionTime, user_functions, without_function
from rankscope.base.finding import Evidence, Finding
from rankscope.records.host import StackSample

FEWEST_SAMPLES = 5
"""Stack samples that must have met a function: the share of fewer is not known within a factor of two."""
FEWEST_TO_CLEAR = 20
"""Samples of a rank below which a function that takes a quarter of the time may well be met less than FEWEST_SAMPLES
times (one run in two)."""
SCATTER = 0.2
"""Share by which times scatter that come from 25 samples (1/sqrt(25)); most functions that matter have more."""
LOW_END = 0.7
"""Share of what is material that must be left where the samples overstate a gain by their scatter: a gain that is just
material counts from 11 samples on (1 - 1/sqrt(11))."""
MOSTLY = 0.6
"""Share of a function's samples that must have found it blocked, or called back, to say so: half of them and the
standard deviation of that (0.5/sqrt(25))."""


class SlowCode(Detector):
    """A function of the user takes the time itself: in a phase, between phases, in a hook or a callback.

    ## What it is
    Python code, a sleep, a wait for a file or a server, numpy work, a hook on tensors or modules: anything but the
    tensor operators that the model is made of.

    ## What shows it
    The stack samples find the training thread in that function, running Python, blocked, or called back by torch; the
    replay without it tells what it costs the run.

    ## What else looks like it
    Loading data, saving, evaluating, logging and communication have causes of their own.

    ## What to do
    Move it out of the step: do it less often, in a background thread or process, vectorised, or on one rank only.
    """

    name = "slow-code"
    needs = (StackSample,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        functions = [user_functions(facts, p) for p in range(facts.size)]
        if not any(len(facts.samples(p)) for p in range(facts.size)):
            raise CannotExamine("no stack samples of the training threads")
        codes: dict[Code, float] = {}
        for of_rank in functions:
            for code, entry in of_rank.items():
                codes[code] = max(codes.get(code, 0.0), entry.ns)
        worst = sorted(codes, key=lambda c: -codes[c])[:4]
        found = [self._judge(facts, code, [f.get(code) for f in functions]) for code in worst]
        yield from (finding for finding in found if finding is not None)
        fewest = min(int(facts.sampled_in_window(p)) for p in range(facts.size))
        if not any(found) and fewest < FEWEST_TO_CLEAR:
            raise CannotExamine(f"only {fewest} stack samples were taken in the steps that are analysed")

    def _judge(self, facts: Facts, code: Code, entries: list[FunctionTime | None]) -> Finding | None:
        ns = np.array([e.ns if e else 0.0 for e in entries])
        # Ranks alike would fall below SHARE_OF_WORST by chance.
        positions = tuple(int(p) for p in np.flatnonzero(ns >= max(SHARE_OF_WORST * (1 - SCATTER) * ns.max(), 1)))
        heaviest = entries[int(np.argmax(ns))]
        assert heaviest is not None
        if heaviest.samples < FEWEST_SAMPLES or ns.max() < MATERIAL * facts.span_ns:
            return None
        everywhere = len(positions) == facts.size
        gain = facts.gain(
            lambda p, durations: (
                without_function(facts, p, durations, entry)
                if p in positions and (entry := entries[p]) is not None
                else None
            )
        )
        floor = MATERIAL_EVERYWHERE if everywhere else MATERIAL
        # With n samples of N the share is known within about 1/sqrt(n).
        if gain * (1 - 1 / np.sqrt(heaviest.samples)) < LOW_END * floor or gain < floor:
            return None
        phase = heaviest.phases.most_common(1)[0][0]
        who = wording.ranks(facts, positions)
        kind = (
            "sleeps or waits"
            if heaviest.blocked > MOSTLY * heaviest.samples
            else "runs in a hook or callback"
            if heaviest.hook > MOSTLY * heaviest.samples
            else "runs"
        )
        share = float(ns.max()) / facts.span_ns
        return Finding(
            cause=self.name,
            severity="warning",
            confidence=min(0.9, 0.6 + 0.02 * heaviest.samples),
            title=f"{who}: {heaviest.place.short} {kind} {wording.percent(share)} of the time, in {phase}",
            ranks=facts.numbers(positions),
            all_ranks=everywhere,
            phase=phase,
            component=heaviest.place.function if heaviest.hook > MOSTLY * heaviest.samples else heaviest.component,
            location=wording.location(heaviest.place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, float(ns.max()), gain),
            evidence=tuple(
                Evidence(
                    f"rank {facts.ranks[p].rank}: {e.samples} stack samples in this function, per step",
                    e.ns / len(facts.steps) / 1e6,
                    "ms",
                    (facts.ranks[p].rank,),
                )
                for p in positions
                if (e := entries[p]) is not None
            ),
            next=(
                f"look at {heaviest.place.short}: do it less often, vectorised, or outside of the training step",
                "move it to a background thread or process if its result is not needed at once",
            ),
        )
