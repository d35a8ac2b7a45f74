"""A finding from the assessment of a stop: what all detectors of failures say in the same way."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import wording
from rankscope.analysis.ends import End, ends
from rankscope.analysis.facts import Facts
from rankscope.analysis.hangs import Blame, blame
from rankscope.analysis.standing import standing
from rankscope.analysis.wavefront import group_words
from rankscope.base.finding import Cost, Evidence, Finding

MOST_OTHERS = 6
"""Ranks whose part in the stop is told one by one."""


def found(facts: Facts, cause: str, title: str, advice: tuple[str, ...]) -> Iterator[Finding]:
    """The finding where the stop has this cause. In `title`, {who}, {why} and {where} are filled in."""
    root = blame(facts)
    if root is None or root.cause != cause:
        return
    numbers = facts.numbers(root.positions)
    steps = [facts.step_count(p) for p in root.positions]
    yield Finding(
        cause=cause,
        severity="critical",
        confidence=root.confidence,
        title=title.format(who=wording.numbered(numbers), why=root.why, where=wording.at(root.place)),
        ranks=numbers,
        all_ranks=len(numbers) == facts.world_size and facts.ranks[0].process.role == "rank",
        phase=None,
        component=_component(root),
        location=wording.location(root.place),
        first_step=min(steps, default=None),
        last_step=None,
        cost=Cost(None, None, None),
        evidence=tuple(_evidence(facts, root)),
        next=advice,
    )


def _component(root: Blame) -> str:
    if root.component:
        return root.component
    if root.front is not None and root.positions[0] in root.front.entered:
        return root.front.entered[root.positions[0]].short
    return root.place.function if root.place is not None else root.why.partition(":")[0]


def _evidence(facts: Facts, root: Blame) -> Iterator[Evidence]:
    for position in root.positions[:MOST_OTHERS]:
        yield Evidence("steps it had finished", float(facts.step_count(position)), "count", facts.numbers((position,)))
    if root.front is not None:
        group = group_words(root.front.group)
        yield Evidence(f"operations of {group} before the stop", float(root.front.sequence), "count")
        for position, call in sorted(root.front.entered.items())[:MOST_OTHERS]:
            yield _for_seconds(facts, position, f"waited in {call.short}")
        for position in root.front.absent[:MOST_OTHERS]:
            yield _for_seconds(facts, position, f"had not come, and was{_in_place(facts, position)}")
    else:
        for position in range(min(facts.size, MOST_OTHERS)):
            if position not in root.positions:
                yield _other(facts, position, root.end)


def _other(facts: Facts, position: int, first: End | None) -> Evidence:
    end = next((end for end in ends(facts) if end.position == position), None)
    if end is not None and end.failed and first is not None:
        seconds = (end.time_ns - first.time_ns) / 1e9
        return Evidence(f"followed: {end.how[:120]}; after", seconds, "s", facts.numbers((position,)))
    what = "waited" if standing(facts, position).waits else "was"
    return _for_seconds(facts, position, f"{what}{_in_place(facts, position)}")


def _for_seconds(facts: Facts, position: int, words: str) -> Evidence:
    return Evidence(words, standing(facts, position).ns / 1e9, "s", facts.numbers((position,)))


def _in_place(facts: Facts, position: int) -> str:
    place = standing(facts, position).place
    return f" in {place.short}" if place is not None else " elsewhere"
