"""What every rank does now: ranks that do the same together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from rankscope.views.layout import clean, shorten_middle, wrap
from rankscope.views.quantities import time_text
from rankscope.views.sentences import ranks_text

MOST_LINES = 8
"""Groups of ranks in the lines that tell of a stall; the rest is counted."""


@dataclass(frozen=True, slots=True)
class RankStack:
    """One rank: what it does, and its stack of `file:line:function` texts, outermost first."""

    rank: int
    state: str
    since_ms: float | None
    """Without progress for so long; None: not known."""
    last_call: str
    """`allreduce number 361 of all ranks`."""
    frames: tuple[str, ...]
    waits: bool = False
    """In that collective, for its peers."""
    place: str = ""
    """Its innermost line of the user's."""
    call_place: str = ""
    """Where the last collective was called."""
    who: str = ""
    """Where it is no rank: `process 4711`."""
    native: tuple[str, ...] = ()
    """`function (library)` below the innermost frame, outermost first."""
    why_no_stack: str = ""


def render_stacks(ranks: Sequence[RankStack], width: int) -> str:
    """Ranks with the same stack stand together, the largest group first; no line wider than `width`."""
    lines: list[str] = []
    for same in _together(ranks, lambda one: (one.frames, one.native, one.why_no_stack)):
        if lines:
            lines.append("")
        lines += [line for one in same for line in _hanging(_about(one), width)]
        lines += [shorten_middle(clean(f"    {_frame(text)}"), width) for text in same[0].frames]
        lines += [shorten_middle(clean(f"    {text}"), width) for text in same[0].native]
        if not same[0].frames:
            why = f": {same[0].why_no_stack}" if same[0].why_no_stack else ""
            lines += [f"    {line}" for line in wrap(f"no stack could be taken{why}", width - 4)]
    return "\n".join(lines) + "\n"


def render_stall(ranks: Sequence[RankStack], step: int, width: int) -> list[str]:
    """The lines that tell of a stall while the run goes on: who waits in what since when, and what the others do."""
    oldest = max((one.since_ms or 0.0 for one in ranks), default=0.0)
    lines = [f"rankscope: no progress for {time_text(oldest)}, after {step} steps"]
    groups = _together(ranks, lambda one: (one.state, one.last_call if one.waits else "", one.place))
    for same in groups[:MOST_LINES]:
        one = same[0]
        who = ranks_text(tuple(sorted(other.rank for other in same)), all_ranks=False)
        since = f" for {time_text(max(other.since_ms or 0.0 for other in same))}"
        if one.waits and one.last_call:
            where = f", {one.call_place or one.place}," if one.call_place or one.place else ""
            text = f"{who} wait{'s' if len(same) == 1 else ''} in {one.last_call}{where}{since}"
        else:
            text = f"{who} {one.state}{f' in {one.place}' if one.place else ''}{since}"
        lines.append(shorten_middle(clean(f"  {text}"), width))
    if len(groups) > MOST_LINES:
        lines.append(f"  and {sum(len(same) for same in groups[MOST_LINES:])} more ranks")
    return lines


def _together(ranks: Sequence[RankStack], key: Callable[[RankStack], Hashable]) -> list[list[RankStack]]:
    groups: dict[Hashable, list[RankStack]] = {}
    for one in ranks:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.values(), key=lambda same: (-len(same), same[0].rank))


def _hanging(text: str, width: int) -> list[str]:
    """One entry: what does not fit into its first line stands indented below."""
    first, *rest = wrap(text, width)
    return [first, *(f"        {line}" for line in wrap(" ".join(rest), width - 8) if line)]


def _about(one: RankStack) -> str:
    since = f", no progress for {time_text(one.since_ms)}" if one.since_ms is not None else ""
    call = f"; last collective: {one.last_call}" if one.last_call else ""
    return f"{one.who or f'rank {one.rank}'}  {one.state}{since}{call}"


def _frame(text: str) -> str:
    head, _, function = text.rpartition(":")
    return f"{function}  {head}"
