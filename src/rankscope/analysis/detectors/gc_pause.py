"""Finds ranks that stop for Python's garbage collector while others wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import timeline, wording
from rankscope.analysis.dataflow import calls
from rankscope.analysis.detector import MATERIAL, Detector, worst_ranks
from rankscope.analysis.facts import Facts, Mask
from rankscope.analysis.hot_code import hot_place, samples_in
from rankscope.analysis.tables import column
from rankscope.base.finding import Evidence, Finding
from rankscope.records.host import GcPause as GcPauseRecord
from rankscope.records.training import Step

LARGER = 1.5
"""Times the longest collection of the rank with the smallest heap from which on another rank's heap is a large one:
what they have in common, the program and torch, is then no reason to name them all."""


class GcPause(Detector):
    """Python's garbage collector stops a rank, and the others wait for it.

    ## What it is
    The cyclic collector runs when enough objects have been made, at another step on each rank; a full collection walks
    every container that the process holds.

    ## What shows it
    Collections timed by `gc.callbacks` on the training thread; their time on the critical path of the run.

    ## What else looks like it
    User code that is slow now and then (`slow-code`): no collection falls into it.

    ## What to do
    `gc.freeze()` after start-up, `gc.disable()` and `gc.collect()` every N steps on all ranks at once; keep fewer
    small objects alive (arrays instead of lists of lists).
    """

    name = "gc-pause"
    needs = (Step,)
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        masks, own = {}, []
        for p in range(facts.size):
            segments = facts.timelines[p].segments
            mask = facts.in_window(p) & (segments["detail"] == timeline.GC)
            masks[p] = mask
            own.append(float(facts.timelines[p].durations()[mask].sum()))
        total = np.array(own)
        if not total.any():
            return
        longest = np.array([_longest(facts, p) for p in range(facts.size)])
        # Collections as long as torch's own heap makes them are met everywhere; a large heap shows in each of them.
        common = float(longest.min()) if longest.max() >= LARGER * longest.min() else 0.0
        positions = tuple(sorted(set(worst_ranks(total)) & set(worst_ranks(longest - common))))
        gain = facts.gain_without({p: masks[p] for p in positions})
        if gain < MATERIAL:
            return
        rows = np.concatenate([facts.rows(GcPauseRecord, p) for p in positions])
        # Full collections take about the same time each; young ones are far shorter.
        long = rows[rows["duration_ns"] >= 0.5 * rows["duration_ns"].max()]
        generation = int(np.bincount(column(long, GcPauseRecord, "generation")).argmax())
        hot = hot_place(facts, positions[0], samples_in(facts, positions[0], masks[positions[0]]), skip_loop=False)
        place = hot.place if hot is not None else None
        asked = place if place is not None and calls(place.file, place.line, "collect") else None
        who = wording.ranks(facts, positions)
        usual = float(np.median(long["duration_ns"]))
        stopped = _stopped_ns(facts, masks, positions)
        steps = [s for s in (facts.step_of(int(t)) for t in long["time_ns"]) if s is not None]
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.95,
            title=f"{who}: garbage collection stops training, {len(long)} times for about {wording.ms(usual)} each",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase=None,
            component=f"Python garbage collection, generation {generation}",
            location=wording.location(place),
            first_step=min(steps, default=None),
            last_step=max(steps, default=None),
            # All ranks run the same script: what is changed for these is changed for all.
            cost=wording.cost(facts, stopped, facts.gain_without(masks)),
            evidence=(
                Evidence("long collections", float(len(long)), "count", facts.numbers(positions)),
                Evidence("longest collection", float(rows["duration_ns"].max()) / 1e6, "ms"),
                Evidence("time in collections", stopped / facts.span_ns, "share"),
            ),
            next=(
                *([f"remove the call of gc.collect() in {asked.short}"] if asked is not None else []),
                "call gc.freeze() once after start-up, so that what lives for ever is not walked again",
                "gc.disable(), and gc.collect() every few hundred steps on all ranks at once",
                "keep fewer small Python objects alive",
            ),
        )


def _stopped_ns(facts: Facts, masks: dict[int, Mask], positions: tuple[int, ...]) -> float:
    """Time in which at least one of these ranks collects: ranks that collect at the same moment stop the run once."""
    segments = np.concatenate([facts.timelines[p].segments[masks[p]] for p in positions])
    segments = segments[np.argsort(segments["start"])]
    until = np.maximum.accumulate(segments["end"])
    begin = np.maximum(segments["start"], np.append(segments["start"][:1], until[:-1]))
    return float(np.maximum(0, segments["end"] - begin).sum())


def _longest(facts: Facts, position: int) -> float:
    rows = facts.rows(GcPauseRecord, position)
    return float(rows["duration_ns"].max()) if len(rows) else 0.0
