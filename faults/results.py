"""What became of a case: its observed runs, their score, and its line of the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from page import Row
from running import Case, Outcome
from scoring import Expected, Score, WhatIf, score, train_seconds

MOST_OUTPUT = 20_000
"""Characters of a run's output that are kept beside its report, from the end."""
NEVER = "never"
"""Where no right line came while a program hung."""


@dataclass(slots=True)
class Result:
    """What became of one case. `outcomes` are the observed runs; the first gives the report for the what-if check."""

    case: Case
    score: Score | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    exit_code: int | None = None
    """What each run should end with; null: anything, the bench ends it."""
    skipped: str | None = None
    what_if: WhatIf | None = None

    @property
    def name(self) -> str:
        return self.case.expected.id + (" repaired" if self.case.script != "train.py" else "")

    @property
    def family(self) -> str:
        return self.case.expected.family

    @property
    def is_performance_fault(self) -> bool:
        return self.case.expected.id.startswith("A-P") and not self.case.expected.healthy

    @property
    def ended_otherwise(self) -> bool:
        """Whether an observed run ended with another exit code than it should."""
        return not self.case.expected.hangs and any(one.exit_code != self.exit_code for one in self.outcomes)

    @property
    def told_after_s(self) -> float | None:
        """The longest time from a stall to the right line; infinite where that never came, null where nothing hangs."""
        if not self.case.expected.hangs or not self.outcomes:
            return None
        times = [outcome.told_after_s(self.case.expected) for outcome in self.outcomes]
        return max(float("inf") if time is None else time for time in times)

    def row(self) -> Row:
        expected = ", ".join(self.case.expected.causes) or "healthy"
        title = self.case.expected.title
        if self.score is None:
            return Row(self.name, title, expected, "", "", "", "skipped", None, None, (self.skipped or "",))
        told, line = self.told_after_s, self.score.line_right
        return Row(
            self.name,
            title,
            expected,
            self.score.found,
            self.score.ranks,
            self.score.place,
            "yes" if self.score.exact else "no",
            max(outcome.seconds for outcome in self.outcomes),
            overhead_of(self.outcomes),
            self.score.problems,
            line="" if line is None else "yes" if line else "no",
            told_after="" if told is None else NEVER if told == float("inf") else f"{told:.1f} s",
        )


def overhead_of(outcomes: Sequence[Outcome]) -> float | None:
    """The largest share that the reports themselves state; null where none states one."""
    shares = [((outcome.report or {}).get("overhead") or {}).get("share") for outcome in outcomes]
    return max((share for share in shares if share is not None), default=None)


def score_outcome(outcome: Outcome, expected: Expected, exit_code: int | None) -> Score:
    """The score of one observed run; without a report, or with another exit code, nothing is exact."""
    code = "time-out" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    if outcome.report is None:
        tail = outcome.output.strip().splitlines()[-1:] or ["no output"]
        return Score(False, False, False, "-", "", "", problems=(f"no report, {code}: {tail[0][:120]}",))
    scored = score(outcome.report, expected)
    if not expected.hangs and outcome.exit_code != exit_code:
        return replace(scored, exact=False, problems=(*scored.problems, f"{code}, not {exit_code}"))
    return scored


def as_json(results: Sequence[Result], missed: Sequence[str]) -> str:
    rows = [
        {
            **asdict(result.row()),
            "detected": None if result.score is None else result.score.detected,
            "false_alarm": None if result.score is None else result.score.false_alarm,
            "ranks_right": None if result.score is None else result.score.ranks_right,
            "place_right": None if result.score is None else result.score.place_right,
            "wanted_exit_code": result.exit_code,
            "exit_codes": [outcome.exit_code for outcome in result.outcomes],
            "train_seconds": [train_seconds(outcome.output) for outcome in result.outcomes],
            "told": [[asdict(told) for told in outcome.told] for outcome in result.outcomes],
            "stalled_s": [outcome.stalled_s for outcome in result.outcomes],
            "what_if": None if result.what_if is None else asdict(result.what_if),
            "output_tails": [outcome.output[-MOST_OUTPUT:] for outcome in result.outcomes],
            "reports": [outcome.report for outcome in result.outcomes],
        }
        for result in results
    ]
    return json.dumps({"schema": "rankscope.bench/2", "cases": rows, "missed": list(missed)}, indent=1)
