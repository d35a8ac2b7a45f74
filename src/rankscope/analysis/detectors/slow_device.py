"""Finds the rank whose kernels are all slower than those of its peers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import lateness, wording
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector
from rankscope.analysis.facts import Facts, Ints
from rankscope.analysis.host_time import host_time
from rankscope.analysis.user_time import user_code_share
from rankscope.base.finding import Evidence, Finding
from rankscope.records.training import Forward

STEADY = 0.8
"""Share of steps in which the rank must be the slower one; chance gives one half."""
SLOWER = 1 + MATERIAL
"""Ratio to its peers from which on a phase is slower: with less, slowing all phases alike would not be material."""
ALIKE = 1.6
"""Largest over smallest ratio of the phases: all kernels slow down by about the same factor."""
EXPLAINED = 0.4
"""Share of the excess time that waiting for a CPU, or user code, may take before it is the better explanation."""


class SlowDevice(Detector):
    """One rank's kernels all take longer by about the same factor, and nothing on its host explains it.

    ## What it is
    A device that clocks down (heat, power cap), has errors to correct, or is of a weaker kind.

    ## What shows it
    Forward, backward and optimizer of one rank are slower than the others' at nearly every step by a similar factor,
    with the same inputs, without waiting for a CPU, pauses or user code in between.

    ## What else looks like it
    `uneven-work` (other inputs), `cpu-contention` (no CPU), `slow-code` (user code on that rank), `denormals`.

    ## What to do
    Look at clocks, temperature, power cap and error counters of that device; swap it with another rank and see whether
    the slowness moves along.
    """

    name = "slow-device"
    needs = (Forward,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2:
            raise CannotExamine("one rank: there is nobody to compare with")
        late = lateness.lateness(facts)
        excess = np.median(late.excess, axis=1)
        position = int(np.argmax(excess))
        if late.steady(position) < STEADY or excess[position] < MATERIAL * facts.mean_step_ns:
            return
        ratios = lateness.ratio_by_phase(facts, position)
        slow = [r for r in ratios.values() if r > SLOWER]
        if len(ratios) < 2 or len(slow) < len(ratios) or max(slow) / min(slow) > ALIKE:
            return
        work = np.array([np.median(lateness.elements_per_step(facts, p)) for p in range(facts.size)])
        if work[position] > (1 + lateness.MORE_WORK) * np.median(np.delete(work, position)):
            return  # it has more to do: uneven-work
        share = float(excess[position]) / facts.mean_step_ns
        host = host_time(facts, position)
        peers = [host_time(facts, p).run_delay or 0.0 for p in range(facts.size) if p != position]
        # What explains a good part of the excess leaves too little of it to blame the device.
        if host.run_delay is not None and host.run_delay - float(np.median(peers)) > EXPLAINED * share:
            return
        if user_code_share(facts, position) > EXPLAINED * share:
            return
        gain = facts.gain(lambda p, durations: _like_peers(facts, p, durations, position, ratios))
        if gain < MATERIAL:
            return
        number = facts.ranks[position].rank
        factor = float(np.median(list(ratios.values())))
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.75,
            title=f"rank {number} computes {factor:.2f} times slower than its peers in all phases, the others wait",
            ranks=(number,),
            all_ranks=False,
            phase=max(ratios, key=lambda k: ratios[k]),
            component=f"device of rank {number} on {facts.ranks[position].process.host}",
            location=None,
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, share * facts.span_ns, gain),
            evidence=(
                *(
                    Evidence(f"{phase} of rank {number} over the peers' median", r, "x", (number,))
                    for phase, r in ratios.items()
                ),
                Evidence("steps in which it is the slower one", late.steady(position), "share", (number,)),
                *(
                    (Evidence("time it waited for a CPU", host.run_delay, "share", (number,)),)
                    if host.run_delay is not None
                    else ()
                ),
            ),
            next=(
                "check clocks, temperature, power limit and error counters of that device",
                "swap the device with another rank's: does the slowness move with it?",
            ),
        )


def _like_peers(facts: Facts, p: int, durations: Ints, position: int, ratios: dict[str, float]) -> Ints | None:
    """Compute time of the slow rank shortened to what its peers take."""
    if p != position:
        return None
    for phase, ratio in ratios.items():
        mask = facts.work(p, phase)
        durations[mask] = (durations[mask] / max(1.0, ratio)).astype(np.int64)
    return durations
