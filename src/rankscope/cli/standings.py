"""What every rank of a run does, from its records: for `rankscope stacks` and for the lines that tell of a stall."""

from __future__ import annotations

from rankscope.analysis.facts import Facts
from rankscope.analysis.standing import end_of, ended_well, standing
from rankscope.analysis.wavefront import group_words, history
from rankscope.base.outside import STOPPED
from rankscope.views.stacks import RankStack


def rank_stacks(facts: Facts) -> list[RankStack]:
    """One entry a rank, in the order of the ranks."""
    return [_rank_stack(facts, position) for position in range(facts.size)]


def _rank_stack(facts: Facts, position: int) -> RankStack:
    where = standing(facts, position)
    end = end_of(facts, position)
    own = history(facts, position)
    call = own[-1] if own else None
    if end is not None:
        state = f"has ended: {end.how}" if not ended_well(facts, position) else "has come to its end"
    elif where.stopped:
        state = STOPPED
    else:
        state = "waits for its peers" if where.waits else "sleeps" if where.blocked else "runs"
        state += ", holds the interpreter lock in native code" if where.holds_lock else ""
    frames = where.stack.frames if where.stack is not None else ()
    return RankStack(
        rank=facts.ranks[position].rank,
        state=state,
        since_ms=where.ns / 1e6,
        last_call=f"{call.operation} {call.sequence} of {group_words(call.group)}" if call else "",
        frames=tuple(f"{f.file}:{f.line}:{f.function}" for f in frames if where.stack and where.stack.is_user(f)),
        waits=where.waits and end is None,
        place=where.place.short if where.place is not None else "",
        why_no_stack=where.why_no_stack,
        call_place=call.site.short if call is not None and call.site is not None else "",
    )
