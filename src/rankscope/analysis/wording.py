"""How numbers and places read in titles and evidence."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.base.finding import Cost, Location

MOST_NUMBERS = 8
"""Of ranks in a sentence: more are not read, and fill the line."""


def percent(share: float) -> str:
    """`31 %`, `4.2 %`."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def ms(ns: float) -> str:
    """`12.3 ms`, `1.2 s`, `45 µs`."""
    if ns >= 1e9:
        return f"{ns / 1e9:.1f} s"
    if ns >= 1e6:
        return f"{ns / 1e6:.1f} ms"
    return f"{ns / 1e3:.0f} µs"


def ranks(facts: Facts, positions: Sequence[int]) -> str:
    """`rank 1`, `ranks 0 and 2`; `all ranks` where these are all that were seen of a job of several."""
    numbers = facts.numbers(positions)
    if facts.world_size > 1 and len(numbers) == facts.size:
        return "all ranks"
    return numbered(numbers)


def numbered(numbers: Sequence[int]) -> str:
    """`rank 1`, `ranks 0 and 2`; of many, the first ones and how many more."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > MOST_NUMBERS:
        return f"ranks {', '.join(map(str, numbers[:MOST_NUMBERS]))} and {len(numbers) - MOST_NUMBERS} more"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def waits(facts: Facts, positions: Sequence[int]) -> str:
    """`rank 1 waits`, `ranks 0 and 2 wait`."""
    return f"{ranks(facts, positions)} {'waits' if len(positions) == 1 else 'wait'}"


def location(place: Place | None) -> Location | None:
    """The place as a finding names it."""
    return Location(place.file, place.line, place.function) if place is not None else None


def at(place: Place | None) -> str:
    """` in f (train.py:41)`, or nothing where the place is not known."""
    return f" in {place.short}" if place is not None else ""


def cost(facts: Facts, ns: float, gain: float | None) -> Cost:
    """The cost of something that takes `ns` of the window."""
    steps = max(1, len(facts.steps))
    # A quota counts the time of every core that it held, and a record may begin before the window.
    share = min(1.0, ns / facts.span_ns) if facts.span_ns else None
    return Cost(ns / steps / 1e6, share, gain)
