"""Runs the fault programs under rankscope and says how many are found, with which false alarms, and at what cost.

Example: python faults/bench.py --only p02,n01
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from page import case_table, text_table, what_if_table, write_page
from results import Result, as_json, score_outcome
from running import Case, cuda_missing, load_cases, run_bare, run_observed
from scoring import FAMILIES, WhatIf, train_seconds, what_if, worst
from targets import missed_targets, summary

SHORT = ("p02", "p06", "p12", "p16", "n01", "n09", "c09s")
REPEATS_WHERE_NOISY = 5
WHATIF_PAIRS = 3


def repaired_twin(case: Case) -> Case | None:
    """The same program without its fault, to be scored as a healthy one."""
    script = case.expected.repaired
    if script is None:
        return None
    healthy = replace(
        case.expected, causes=(), forbidden=(), ranks=(), all_ranks=None, place=(), repaired=None, hangs=False,
        exit_code=None, root=None, allowed=case.expected.allowed_repaired,
    )  # fmt: skip
    return Case(f"{case.key}r", case.folder, script, healthy)


def wanted_exit_code(case: Case, skip_bare: bool) -> int | None:
    """What an observed run must end with: the same as bare, but of a fault that fails what its case says.

    A program that hangs has no bare run, for it never ends; null for it.
    """
    if case.expected.hangs:
        return None
    if not case.expected.healthy and case.expected.exit_code is not None:
        return case.expected.exit_code
    return 0 if skip_bare else run_bare(case).exit_code


def examine(case: Case, repeat: int, skip_bare: bool) -> Result:
    result = Result(case, exit_code=wanted_exit_code(case, skip_bare))
    times = max(repeat, REPEATS_WHERE_NOISY if case.expected.noise == "repeat" else 1)
    scores = []
    for _ in range(times):
        result.outcomes.append(run_observed(case))
        scores.append(score_outcome(result.outcomes[-1], case.expected, result.exit_code))
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


def page_bodies(results: Sequence[Result]) -> dict[str, str]:
    """The tables of each family that was run."""
    return {
        family: page_body(members)
        for family in FAMILIES
        if (members := [result for result in results if result.family == family])
    }


def page_body(results: Sequence[Result]) -> str:
    """Summary, faults, controls and repaired twins, and the what-if, of one family."""
    machine = f"Measured on {platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}."
    parts = [summary(results), machine]
    for healthy in (False, True):
        rows = [result.row() for result in results if result.case.expected.healthy == healthy]
        if rows:
            parts.append(case_table(rows))
    checked = {result.name: result.what_if for result in results if result.what_if is not None}
    if checked:
        parts.append(what_if_table(checked))
    return "\n\n".join(parts)


def select(cases: dict[str, Case], only: str | None, short: bool, family: str | None = None) -> list[Case]:
    """Cases by folder name or identifier (p02 or A-P02), or all of a family; ValueError names one that is not there."""
    if only is None:
        some = [cases[key] for key in SHORT] if short else list(cases.values())
        return [case for case in some if family in (None, case.expected.family)]
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
    options.add_argument(
        "--family",
        choices=FAMILIES,
        help="p: slow runs, c: hangs and crashes, d: numerics, e: data, each with its controls (default: all)",
    )
    options.add_argument("--short", action="store_true", help=f"the quick selection: {', '.join(SHORT)}")
    options.add_argument("--repeat", type=int, default=1, help="observed runs of each case; the worst one counts")
    options.add_argument(
        "--whatif", action="store_true", help="also compare the predicted gain with the repaired twins"
    )
    options.add_argument("--skip-twins", action="store_true", help="do not run the repaired twins as healthy programs")
    options.add_argument("--skip-bare", action="store_true", help="take 0 for a healthy exit code, run none bare")
    options.add_argument("--out", type=Path, help="page to write the tables into: docs/faults.md")
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
                if options.whatif and result.is_performance_fault and twin is not None:
                    result.what_if = check_what_if(result, twin)
            results.append(result)
            print(f"[{number}/{len(chosen)}] " + "  ".join(result.row().cells()), flush=True)
            if result.what_if is not None:
                print(what_if_table({result.name: result.what_if}), flush=True)
    return results


def main() -> int:
    options = parser().parse_args()
    try:
        chosen = select(load_cases(), options.only, options.short, options.family)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    results = examine_all(chosen, options)
    missed = missed_targets(results)
    print("\n" + text_table([result.row() for result in results]))
    print("\n" + summary(results))
    if options.out:
        write_page(options.out, page_bodies(results))
    if options.json:
        options.json.write_text(as_json(results, missed))
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
