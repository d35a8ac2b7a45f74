"""What every rank does now: ranks with the same stack together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankscope.views.layout import clean, shorten_middle
from rankscope.views.quantities import time_text


@dataclass(frozen=True, slots=True)
class RankStack:
    """One rank: a line about it, and its stack of `file:line:function` texts, outermost first."""

    rank: int
    state: str
    since_ms: float | None
    """Without progress for so long; None: not known."""
    last_call: str
    frames: tuple[str, ...]


def render_stacks(ranks: Sequence[RankStack], width: int) -> str:
    """Ranks with the same stack stand together, the largest group first; no line wider than `width`."""
    groups: dict[tuple[str, ...], list[RankStack]] = {}
    for one in ranks:
        groups.setdefault(one.frames, []).append(one)
    lines: list[str] = []
    for frames, same in sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0].rank)):
        if lines:
            lines.append("")
        lines += [shorten_middle(clean(_about(one)), width) for one in same]
        lines += [shorten_middle(clean(f"    {_frame(text)}"), width) for text in frames]
        if not frames:
            lines.append("    no stack could be taken")
    return "\n".join(lines) + "\n"


def _about(one: RankStack) -> str:
    since = f", no progress for {time_text(one.since_ms)}" if one.since_ms is not None else ""
    call = f"; last collective: {one.last_call}" if one.last_call else ""
    return f"rank {one.rank}  {one.state}{since}{call}"


def _frame(text: str) -> str:
    head, _, function = text.rpartition(":")
    return f"{function}  {head}"


def numbers(ranks: Iterable[RankStack]) -> list[int]:
    """Rank numbers, in order."""
    return sorted(one.rank for one in ranks)
