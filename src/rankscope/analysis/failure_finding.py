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
        rank = facts.ranks[position].rank
        yield Evidence(f"steps that rank {rank} had finished", float(facts.step_count(position)), "count", (rank,))
    if root.front is not None:
        yield Evidence(
            f"count of operations of {group_words(root.front.group)} at the stop", float(root.front.sequence), "count"
        )
        for position, call in sorted(root.front.entered.items())[:MOST_OTHERS]:
            rank = facts.ranks[position].rank
            text = f"rank {rank} called {call.short}, and nothing went on for"
            yield Evidence(text, standing(facts, position).ns / 1e9, "s", (rank,))
        for position in root.front.absent[:MOST_OTHERS]:
            yield _place(facts, position)
    else:
        for position in range(min(facts.size, MOST_OTHERS)):
            if position not in root.positions:
                yield _other(facts, position, root.end)


def _place(facts: Facts, position: int) -> Evidence:
    rank, where = facts.ranks[position].rank, standing(facts, position)
    place = f" in {where.place.short}" if where.place is not None else ""
    return Evidence(f"rank {rank} had not come, and was{place or ' elsewhere'} for", where.ns / 1e9, "s", (rank,))


def _other(facts: Facts, position: int, first: End | None) -> Evidence:
    rank = facts.ranks[position].rank
    end = next((end for end in ends(facts) if end.position == position), None)
    if end is not None and end.failed and first is not None:
        return Evidence(
            f"rank {rank} followed: {end.how[:120]}; after", (end.time_ns - first.time_ns) / 1e9, "s", (rank,)
        )
    where = standing(facts, position)
    what = "waited" if where.waits else "was"
    place = f" in {where.place.short}" if where.place is not None else ""
    return Evidence(f"rank {rank} {what}{place} for", where.ns / 1e9, "s", (rank,))
