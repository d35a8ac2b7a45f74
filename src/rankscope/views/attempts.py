"""The attempts of a run in words: what became of each, and what changed from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.report.report import Attempt
from rankscope.views.quantities import count_text, time_text
from rankscope.views.sentences import ranks_text


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt in words."""

    number: str
    how: str
    steps: str
    time: str
    finding: str
    """Cause and ranks of its first finding."""


def attempt_rows(attempts: Sequence[Attempt]) -> list[AttemptRow]:
    """One row an attempt; none where the command was started once."""
    if len(attempts) < 2:
        return []
    return [
        AttemptRow(
            str(one.number),
            _how(one),
            count_text(one.steps) if one.steps is not None else "-",
            time_text(one.duration_s * 1e3) if one.duration_s is not None else "-",
            _failure(one),
        )
        for one in attempts
    ]


def changed_text(attempts: Sequence[Attempt]) -> str:
    """`attempt 1 stopped at step 44: uneven-inputs on rank 1; attempt 2 came to its end`."""
    *earlier, last = attempts
    if not earlier:
        return ""
    before = earlier[-1]
    if last.why != "done" and _same(before, last):
        again = "the same failure again" if len(attempts) == 2 else "the same failure each time"
        if not all(_same(one, last) for one in earlier):
            again = f"the same failure as in attempt {before.number}"
        others = [one for one in earlier if _same(one, last)]
        if any(one.ranks != last.ranks for one in others):
            return f"{again}, on another rank: {last.cause} on {_who(others[-1])}, then on {_who(last)}"
        steps = [count_text(one.steps) for one in (*others, last) if one.steps is not None]
        where = f"at the same step ({steps[0]})" if len(set(steps)) == 1 else f"at steps {' and '.join(steps[-2:])}"
        return f"{again}, {where}: {_failure(last)}"
    return f"{_stopped(before)}; {_stopped(last)}"


def _same(one: Attempt, other: Attempt) -> bool:
    return one.cause is not None and one.cause == other.cause


def _stopped(one: Attempt) -> str:
    if one.why == "done":
        return f"attempt {one.number} came to its end"
    if one.why is None:
        return f"attempt {one.number} goes on"
    at = f" at step {count_text(one.steps)}" if one.steps is not None else ""
    if one.why == "interrupted":
        return f"attempt {one.number} was interrupted{at}"
    return f"attempt {one.number} stopped{at}: {_failure(one) or 'no cause is shown'}"


def _how(one: Attempt) -> str:
    """`hung, was ended`, `failed, exit code 1`."""
    if one.why == "hang":
        return "hung, was ended"
    if one.why == "done":
        return "came to its end"
    if one.why is None:
        return "goes on"
    code = one.signal or (f"exit code {one.exit_code}" if one.exit_code is not None else "")
    return f"{'interrupted' if one.why == 'interrupted' else 'failed'}{f', {code}' if code else ''}"


def _failure(one: Attempt) -> str:
    """`uneven-inputs on rank 1`; empty where nothing was found."""
    return f"{one.cause}{f' on {_who(one)}' if one.ranks else ''}" if one.cause else ""


def _who(one: Attempt) -> str:
    return ranks_text(one.ranks)
