"""Runs the fault programs under rankscope and says how many are found, with which false alarms, and at what cost.

Example: python faults/bench.py --only p02,n01
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from page import HEADER, Row, markdown_table, text_table, what_if_table, write_page
from running import Case, Outcome, cuda_missing, load_cases, run_bare, run_observed
from scoring import MIN_EXACT, Expected, Score, WhatIf, score, train_seconds, what_if, worst

SHORT = ("p02", "p06", "p12", "p16", "n01", "n09")
REPEATS_WHERE_NOISY = 5
WHATIF_PAIRS = 3
MIN_WHAT_IF = 6
PERFORMANCE_CASES = 22


@dataclass(slots=True)
class Result:
    """What became of one case. `outcomes` are the observed runs; the first gives the report for the what-if check."""

    case: Case
    score: Score | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    bare_exit_code: int | None = None
    skipped: str | None = None
    what_if: WhatIf | None = None

    @property
    def name(self) -> str:
        return self.case.expected.id + (" repaired" if self.case.script != "train.py" else "")

    @property
    def is_performance_fault(self) -> bool:
        return self.case.expected.id.startswith("A-P") and not self.case.expected.healthy

    def row(self) -> Row:
        expected = ", ".join(self.case.expected.causes) or "healthy"
        title = self.case.expected.title
        if self.score is None:
            return Row(self.name, title, expected, "", "", "", "skipped", None, None, (self.skipped or "",))
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
        )


def overhead_of(outcomes: Sequence[Outcome]) -> float | None:
    """The largest share that the reports themselves state; null where none states one."""
    shares = [((outcome.report or {}).get("overhead") or {}).get("share") for outcome in outcomes]
    return max((share for share in shares if share is not None), default=None)


def repaired_twin(case: Case) -> Case | None:
    """The same program without its fault, to be scored as a healthy one."""
    script = case.expected.repaired
    if script is None:
        return None
    healthy = replace(case.expected, causes=(), forbidden=(), ranks=(), all_ranks=None, place=(), repaired=None)
    return Case(f"{case.key}r", case.folder, script, healthy)


def score_outcome(outcome: Outcome, expected: Expected, bare_exit_code: int | None) -> Score:
    """The score of one observed run; without a report, or with another exit code than bare, nothing is exact."""
    code = "time-out" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    if outcome.report is None:
        tail = outcome.output.strip().splitlines()[-1:] or ["no output"]
        return Score(False, False, False, "-", "", "", problems=(f"no report, {code}: {tail[0][:120]}",))
    scored = score(outcome.report, expected)
    if outcome.exit_code != bare_exit_code:
        return replace(scored, exact=False, problems=(*scored.problems, f"{code}, bare {bare_exit_code}"))
    return scored


def examine(case: Case, repeat: int, skip_bare: bool) -> Result:
    result = Result(case)
    result.bare_exit_code = 0 if skip_bare else run_bare(case).exit_code
    times = max(repeat, REPEATS_WHERE_NOISY if case.expected.noise == "repeat" else 1)
    scores = []
    for _ in range(times):
        result.outcomes.append(run_observed(case))
        scores.append(score_outcome(result.outcomes[-1], case.expected, result.bare_exit_code))
    result.score = worst(scores)
    return result


def check_what_if(result: Result, twin: Case) -> WhatIf | None:
    """Bare runs in turn (faulty, repaired, faulty, ...) against the first report; null where no time is printed."""
    faulty: list[float] = []
    repaired: list[float] = []
    for _ in range(WHATIF_PAIRS):
        for case, times in ((result.case, faulty), (twin, repaired)):
            seconds = train_seconds(run_bare(case).output)
            if seconds is None:
                return None
            times.append(seconds)
    report = result.outcomes[0].report if result.outcomes else None
    return what_if(faulty, repaired, report or {}, result.case.expected.causes)


def missed_targets(results: Sequence[Result]) -> list[str]:
    """What falls short, in words.

    Of all 22 performance faults 20 must be exact, of fewer the same share; a skipped one is not exact.
    """
    missed = []
    performance = [result for result in results if result.is_performance_fault]
    needed = math.ceil(len(performance) * MIN_EXACT / PERFORMANCE_CASES)
    exact = sum(result.score is not None and result.score.exact for result in performance)
    if exact < needed:
        skipped = sum(result.score is None for result in performance)
        missed.append(f"{exact} of {len(performance)} performance faults exact ({skipped} skipped), {needed} needed")
    for result in results:
        if result.score is None:
            continue
        if result.case.expected.healthy and not result.score.exact:
            missed.append(f"{result.name}: {'; '.join(result.score.problems)}")
        if not result.case.expected.healthy and not result.score.detected:
            missed.append(f"{result.name} not detected: {'; '.join(result.score.problems)}")
        if any(outcome.exit_code != result.bare_exit_code for outcome in result.outcomes):
            missed.append(f"{result.name}: exit code differs from bare")
    checked = [result for result in results if result.what_if is not None]
    within = sum(bool(result.what_if and result.what_if.within) for result in checked)
    if within < min(MIN_WHAT_IF, len(checked)):
        missed.append(f"what-if within 5 points for {within} of {len(checked)} faults, {MIN_WHAT_IF} needed")
    return missed


def summary(results: Sequence[Result]) -> str:
    performance = [result for result in results if result.is_performance_fault]
    run = [result for result in performance if result.score is not None]
    exact = sum(bool(result.score and result.score.exact) for result in run)
    detected = sum(bool(result.score and result.score.detected) for result in run)
    healthy = [result for result in results if result.case.expected.healthy and result.score is not None]
    alarms = sum(bool(result.score and result.score.false_alarm) for result in healthy)
    return (
        f"{exact} of {len(run)} performance faults exact, {detected} detected, {len(performance) - len(run)} skipped; "
        f"{alarms} false alarms on {len(healthy)} healthy programs."
    )


def page_body(results: Sequence[Result]) -> str:
    machine = f"Measured on {platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}."
    parts = [summary(results), machine, markdown_table(HEADER, [result.row().cells() for result in results])]
    checked = {result.name: result.what_if for result in results if result.what_if is not None}
    if checked:
        parts.append(what_if_table(checked))
    return "\n\n".join(parts)


def as_json(results: Sequence[Result], missed: Sequence[str]) -> str:
    rows = [
        {
            **asdict(result.row()),
            "detected": None if result.score is None else result.score.detected,
            "false_alarm": None if result.score is None else result.score.false_alarm,
            "ranks_right": None if result.score is None else result.score.ranks_right,
            "place_right": None if result.score is None else result.score.place_right,
            "bare_exit_code": result.bare_exit_code,
            "exit_codes": [outcome.exit_code for outcome in result.outcomes],
            "train_seconds": [train_seconds(outcome.output) for outcome in result.outcomes],
            "what_if": None if result.what_if is None else asdict(result.what_if),
            "reports": [outcome.report for outcome in result.outcomes],
        }
        for result in results
    ]
    return json.dumps({"schema": "rankscope.bench/1", "cases": rows, "missed": list(missed)}, indent=1)


def select(cases: dict[str, Case], only: str | None, short: bool) -> list[Case]:
    """Cases by folder name or identifier (p02 or A-P02); ValueError names one that does not exist."""
    if only is None:
        return [cases[key] for key in SHORT] if short else list(cases.values())
    names = {**cases, **{case.expected.id.lower(): case for case in cases.values()}}
    chosen = []
    for name in filter(None, (part.strip().lower() for part in only.split(","))):
        if name not in names:
            raise ValueError(f"--only: there is no case {name!r}, take some of {', '.join(cases)}")
        chosen.append(names[name])
    return chosen


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", help="cases by name, separated by commas: p02,n01")
    options.add_argument("--short", action="store_true", help=f"the quick selection: {', '.join(SHORT)}")
    options.add_argument("--repeat", type=int, default=1, help="observed runs of each case; the worst one counts")
    options.add_argument(
        "--whatif", action="store_true", help="also compare the predicted gain with the repaired twins"
    )
    options.add_argument("--skip-twins", action="store_true", help="do not run the repaired twins as healthy programs")
    options.add_argument("--skip-bare", action="store_true", help="take 0 for the exit code without rankscope")
    options.add_argument("--out", type=Path, help="page to write the table into: docs/faults.md")
    options.add_argument("--json", type=Path, help="file for all results with their reports")
    return options


def examine_all(chosen: Sequence[Case], options: argparse.Namespace) -> list[Result]:
    results: list[Result] = []
    for number, case in enumerate(chosen, 1):
        twin = repaired_twin(case)
        for one in (case, twin):
            if one is None or (one is twin and options.skip_twins):
                continue
            if one.expected.needs == "cuda" and cuda_missing():
                result = Result(one, skipped="needs a CUDA device, none here")
            else:
                result = examine(one, options.repeat, options.skip_bare)
                if options.whatif and one is case and twin is not None:
                    result.what_if = check_what_if(result, twin)
            results.append(result)
            print(f"[{number}/{len(chosen)}] " + "  ".join(result.row().cells()), flush=True)
            if result.what_if is not None:
                print(what_if_table({result.name: result.what_if}), flush=True)
    return results


def main() -> int:
    options = parser().parse_args()
    try:
        chosen = select(load_cases(), options.only, options.short)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    results = examine_all(chosen, options)
    missed = missed_targets(results)
    print("\n" + text_table([result.row() for result in results]))
    print("\n" + summary(results))
    if options.out:
        write_page(options.out, page_body(results))
    if options.json:
        options.json.write_text(as_json(results, missed))
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
