"""What the bench asks of all results together, and its summary in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from results import Result
from scoring import MIN_EXACT

PERFORMANCE_CASES = 22
MIN_WHAT_IF = 6
STOP_CASES, MIN_EXACT_STOPS = 15, 14
LEARNING_CASES, MIN_DETECTED_LEARNING, MIN_EXACT_LEARNING = 50, 47, 42
"""Of numerics and data together."""
TOLD_WITHIN_S = 15.0
MOSTLY_WITHIN_S, MOSTLY = 10.0, 0.9
"""Nine of ten hangs are told so soon."""


def missed_targets(results: Sequence[Result]) -> list[str]:
    """What falls short, in words.

    Of fewer faults than all, the same share must be exact; a skipped one is not exact.
    """
    missed = _too_few(performance_faults(results), "performance faults", MIN_EXACT / PERFORMANCE_CASES)
    missed += _too_few(stops(results), "hangs and crashes", MIN_EXACT_STOPS / STOP_CASES)
    learning = [*numerics_faults(results), *data_faults(results)]
    missed += _too_few(learning, "numerics and data faults", MIN_EXACT_LEARNING / LEARNING_CASES)
    missed += _too_few_detected(learning, "numerics and data faults", MIN_DETECTED_LEARNING / LEARNING_CASES)
    for result in results:
        if result.score is None:
            continue
        if result.case.expected.healthy and not result.score.exact:
            missed.append(f"{result.name}: {'; '.join(result.score.problems)}")
        # Of numerics and data a few may be missed: those are counted above.
        if not result.case.expected.healthy and not result.score.detected and not _is_fault_of(result, "DE"):
            missed.append(f"{result.name} not detected: {'; '.join(result.score.problems)}")
        if result.ended_otherwise:
            missed.append(f"{result.name}: exit code is not {result.exit_code}")
    missed += _told_late(results)
    checked = [result for result in results if result.what_if is not None]
    within = sum(bool(result.what_if and result.what_if.within) for result in checked)
    if within < min(MIN_WHAT_IF, len(checked)):
        missed.append(f"what-if within 5 points for {within} of {len(checked)} faults, {MIN_WHAT_IF} needed")
    return missed


def performance_faults(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.is_performance_fault]


def stops(results: Sequence[Result]) -> list[Result]:
    """The hangs and crashes of the catalogue; variants of them (A-C09s) are not counted."""
    return [result for result in results if _is_fault_of(result, "C")]


def numerics_faults(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if _is_fault_of(result, "D")]


def data_faults(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if _is_fault_of(result, "E")]


def _is_fault_of(result: Result, letters: str) -> bool:
    """Whether it is a fault of the catalogue under one of these letters."""
    expected = result.case.expected
    return not expected.healthy and re.fullmatch(rf"A-[{letters}]\d\d", expected.id) is not None


def _too_few(faulty: Sequence[Result], what: str, share: float) -> list[str]:
    needed = math.ceil(len(faulty) * share - 1e-9)
    exact = sum(result.score is not None and result.score.exact for result in faulty)
    if exact >= needed:
        return []
    skipped = sum(result.score is None for result in faulty)
    return [f"{exact} of {len(faulty)} {what} exact ({skipped} skipped), {needed} needed"]


def _too_few_detected(faulty: Sequence[Result], what: str, share: float) -> list[str]:
    needed = math.ceil(len(faulty) * share - 1e-9)
    undetected = [result.name for result in faulty if result.score is None or not result.score.detected]
    detected = len(faulty) - len(undetected)
    if detected >= needed:
        return []
    return [f"{detected} of {len(faulty)} {what} detected, {needed} needed: not {', '.join(undetected)}"]


def _told_late(results: Sequence[Result]) -> list[str]:
    times = {result.name: time for result in results if (time := result.told_after_s) is not None}
    late = [
        f"{name} told {'never' if time == math.inf else f'{time:.1f} s after its stall'}, {TOLD_WITHIN_S:g} s at most"
        for name, time in times.items()
        if time > TOLD_WITHIN_S
    ]
    soon = sum(time <= MOSTLY_WITHIN_S for time in times.values())
    needed = math.ceil(len(times) * MOSTLY - 1e-9)
    if soon < needed:
        late.append(f"{soon} of {len(times)} hangs told within {MOSTLY_WITHIN_S:g} s, {needed} needed")
    return late


def summary(results: Sequence[Result]) -> str:
    """One sentence for each family that was run."""
    parts = []
    for family, faulty, what in (
        ("p", performance_faults(results), "performance faults"),
        ("c", stops(results), "hangs and crashes"),
        ("d", numerics_faults(results), "numerics faults"),
        ("e", data_faults(results), "data faults"),
    ):
        members = [result for result in results if result.family == family]
        if members:
            parts.append(_family_summary(faulty, members, what))
    return "\n".join(parts)


def _family_summary(faulty: Sequence[Result], members: Sequence[Result], what: str) -> str:
    run = [result for result in faulty if result.score is not None]
    exact = sum(bool(result.score and result.score.exact) for result in run)
    detected = sum(bool(result.score and result.score.detected) for result in run)
    healthy = [result for result in members if result.case.expected.healthy and result.score is not None]
    alarms = sum(bool(result.score and result.score.false_alarm) for result in healthy)
    skipped = len(faulty) - len(run)
    times = sorted(time for result in members if (time := result.told_after_s) is not None)
    soon = sum(time <= MOSTLY_WITHIN_S for time in times)
    told = f"{soon} of {len(times)} hangs told within {MOSTLY_WITHIN_S:g} s; " if times else ""
    return (
        f"{exact} of {len(run)} {what} exact, {detected} detected, {skipped} skipped; {told}"
        f"{alarms} false alarms on {len(healthy)} healthy programs."
    )
