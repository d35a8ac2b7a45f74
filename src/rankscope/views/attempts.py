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
    if len(attempts) < 2:
        return ""
    *earlier, last = attempts
    same = [one for one in earlier if _same(one, last)]
    if last.why == "done" or not same:
        alike = [one for one in earlier if _stop(one) == _stop(earlier[-1])]
        return f"{_named(alike)} {_stop(earlier[-1])}; {_named([last])} {_stop(last)}"
    if len(same) < len(earlier):
        again = f"the same failure as in {_named(same)}"
    else:
        again = "the same failure again" if len(earlier) == 1 else "the same failure each time"
    before = same[-1]
    if before.ranks != last.ranks:
        return f"{again}, on another rank: {last.cause} on {_who(before)}, then on {_who(last)}"
    if before.steps != last.steps:
        return f"{again}, at another step ({_step(before)}, then {_step(last)}): {_failure(last)}"
    return f"{again}, at the same step ({_step(last)}): {_failure(last)}"


def _same(one: Attempt, other: Attempt) -> bool:
    return one.cause is not None and one.cause == other.cause


def _named(attempts: Sequence[Attempt]) -> str:
    """`attempt 3`, `attempts 1 and 2`."""
    *others, last = [str(one.number) for one in attempts]
    return f"attempts {', '.join(others)} and {last}" if others else f"attempt {last}"


def _stop(one: Attempt) -> str:
    """`stopped at step 44: uneven-inputs on rank 1`."""
    if one.why in (None, "done"):
        return "came to its end" if one.why else "goes on"
    at = f" at step {_step(one)}" if one.steps is not None else ""
    if one.why == "interrupted":
        return f"was interrupted{at}"
    return f"stopped{at}: {_failure(one) or 'no cause is shown'}"


def _step(one: Attempt) -> str:
    return count_text(one.steps) if one.steps is not None else "not known"


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
