"""Compares the report of an observed fault program with what its expected.json asks for; no files, no processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALARMING = ("warning", "critical")
WHATIF_TOLERANCE_POINTS = 5.0
MIN_EXACT = 20  # of the 22 performance programs
FAMILIES = ("p", "c", "d", "e")

# Reports and expected.json are JSON of other authors: the only untyped values here.
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Root:
    """The one line of a program that is its fault."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What one fault program must lead to; a healthy program has no causes."""

    id: str
    title: str
    command: tuple[str, ...]
    causes: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    all_ranks: bool | None = None
    rank_rule: str = "exact"
    place: tuple[str, ...] = ()
    needs: str | None = None
    repaired: str | None = None
    world_size: int = 2
    noise: str | None = None
    hangs: bool = False
    """It never ends by itself (or only by a time-out long after), so it is ended once its failure was told."""
    exit_code: int | None = None
    """Of a program that fails by itself; null: the same as without rankscope."""
    root: Root | None = None
    allowed: tuple[str, ...] = ()
    """Causes that are true of a healthy program: no false alarm."""
    allowed_repaired: tuple[str, ...] = ()
    """The same of the repaired twin."""

    @property
    def healthy(self) -> bool:
        return not self.causes

    @property
    def family(self) -> str:
        """`c`: hangs and crashes, `d`: numerics, `e`: data, `p`: slow runs; each with its controls."""
        named = re.match("[AN]-N?([CDE])", self.id)
        return named[1].lower() if named else "p"

    @classmethod
    def from_json(cls, raw: Json) -> Expected:
        """Raises ValueError that names the case and the field."""
        name = raw.get("id", "expected.json without id")
        missing = [key for key in ("id", "title", "command", "causes", "ranks", "world_size") if key not in raw]
        if missing:
            raise ValueError(f"{name}: add {', '.join(missing)}")
        rule = raw.get("rank_rule", "exact")
        if rule not in ("exact", "any"):
            raise ValueError(f"{name}: rank_rule is {rule!r}, write 'exact' or 'any'")
        ends = raw.get("ends") or {"how": "exit"}
        if ends["how"] not in ("exit", "hang"):
            raise ValueError(f"{name}: ends.how is {ends['how']!r}, write 'exit' or 'hang'")
        place = raw.get("place") or {"any_of": []}
        for pattern in place["any_of"]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{name}: place {pattern!r} is no regular expression: {error}") from None
        return cls(
            id=raw["id"],
            title=raw["title"],
            command=tuple(raw["command"]),
            causes=tuple(raw["causes"]),
            forbidden=tuple(raw.get("forbidden", ())),
            ranks=tuple(raw["ranks"]),
            all_ranks=raw.get("all_ranks"),
            rank_rule=rule,
            place=tuple(place["any_of"]),
            needs=raw.get("needs"),
            repaired=raw.get("repaired"),
            world_size=raw["world_size"],
            noise=raw.get("noise"),
            hangs=ends["how"] == "hang",
            exit_code=ends.get("exit_code"),
            root=Root(**raw["root"]) if raw.get("root") else None,
            allowed=tuple(raw.get("allowed", ())),
            allowed_repaired=tuple(raw.get("allowed_repaired", ())),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """What one observed run is worth. `problems` says in words why it is not exact or not silent."""

    detected: bool
    exact: bool
    false_alarm: bool
    found: str
    ranks: str
    place: str
    ranks_right: bool = True
    place_right: bool = True
    line_right: bool | None = None
    """Whether the place is the root's own line; null where the case names none. It decides nothing."""
    problems: tuple[str, ...] = field(default_factory=tuple)


def alarming(report: Json) -> list[Json]:
    """The findings a user would be alarmed by, root first."""
    return [finding for finding in report.get("findings", []) if finding.get("severity") in ALARMING]


def place_texts(finding: Json) -> list[str]:
    """What a finding says about where, each as one text."""
    location = finding.get("location") or {}
    texts = [finding.get("component"), location.get("function"), finding.get("phase")]
    if location.get("file"):
        texts.append(f"{location['file']}:{location.get('line') or 0}")
    return [str(text) for text in texts if text]


def place_matches(finding: Json, patterns: Sequence[str]) -> bool:
    """True where no place is asked for, or one pattern occurs in one text of the place (case is ignored)."""
    texts = place_texts(finding)
    return not patterns or any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns for text in texts)


def line_matches(finding: Json, root: Root | None) -> bool | None:
    """Whether a finding's location is exactly the root (a method may be named with its class); null without a root."""
    if root is None:
        return None
    location = finding.get("location") or {}
    file, function = str(location.get("file")), str(location.get("function"))
    named = (file.rpartition("/")[2], location.get("line"), function.rpartition(".")[2])
    return named == (root.file, root.line, root.function)


def ranks_match(finding: Json, expected: Expected) -> bool:
    """True where the finding blames the right ranks.

    `all_ranks` true accepts the flag or the full list; false also asks that the flag is not set; null ignores the flag.
    Rule "any" accepts a non-empty subset of the expected ranks.
    """
    named = set(finding.get("ranks") or ())
    everywhere = bool(finding.get("all_ranks"))
    if expected.all_ranks and everywhere:
        return True
    if expected.all_ranks is False and everywhere:
        return False
    if expected.rank_rule == "any":
        return bool(named) and named <= set(expected.ranks)
    return named == set(expected.ranks)


def describe_place(finding: Json) -> str:
    location = finding.get("location") or {}
    where = f"{location['file'].rsplit('/', 1)[-1]}:{location.get('line')}" if location.get("file") else ""
    return " ".join(str(text) for text in (finding.get("component") or location.get("function"), where) if text)


def describe_ranks(finding: Json) -> str:
    return "all" if finding.get("all_ranks") else ",".join(str(rank) for rank in finding.get("ranks") or ())


def score(report: Json, expected: Expected) -> Score:
    """Scores a fault program or a healthy one, by whether `expected` names causes."""
    return score_healthy(report, expected.allowed) if expected.healthy else score_fault(report, expected)


def score_healthy(report: Json, allowed: Sequence[str] = ()) -> Score:
    """A healthy program must end with verdict healthy and no finding above info, but for causes that are true of it.

    `allowed` may name the verdict `not-examined`, of ranks that have no steps in common.
    """
    alarms = alarming(report)
    problems = [f"{finding['severity']} {finding['cause']}" for finding in alarms if finding["cause"] not in allowed]
    verdict = report.get("verdict")
    true_of_it = verdict in allowed or (verdict == "degraded" and alarms and allowed)
    if verdict != "healthy" and not true_of_it:
        problems.append(f"verdict {verdict}")
    first: Json = alarms[0] if alarms else {}
    return Score(
        detected=False,
        exact=not problems,
        false_alarm=bool(problems),
        found=", ".join(dict.fromkeys(finding["cause"] for finding in alarms)) or "-",
        ranks=describe_ranks(first),
        place=describe_place(first),
        problems=tuple(problems),
    )


def score_fault(report: Json, expected: Expected) -> Score:
    """Exact: the first finding alarms with an accepted cause, ranks and place, and nothing forbidden alarms."""
    findings: Sequence[Json] = report.get("findings", [])
    alarms = alarming(report)
    problems: list[str] = []
    first: Json = findings[0] if findings else {}
    right_cause = first.get("cause") in expected.causes and first.get("severity") in ALARMING
    ranks_right = ranks_match(first, expected)
    place_right = place_matches(first, expected.place)
    if not findings:
        problems.append("no finding")
    elif not right_cause:
        problems.append(f"first finding is {first.get('severity')} {first.get('cause')}")
    else:
        if not ranks_right:
            problems.append(f"blames ranks {describe_ranks(first) or 'none'}")
        if not place_right:
            problems.append(f"place {describe_place(first) or 'missing'}")
    forbidden = [finding["cause"] for finding in alarms if finding["cause"] in expected.forbidden]
    problems += [f"names {cause}, which is wrong here" for cause in forbidden]
    return Score(
        detected=any(finding["cause"] in expected.causes for finding in alarms),
        exact=not problems,
        false_alarm=False,
        found=str(first.get("cause", "-")),
        ranks=describe_ranks(first),
        place=describe_place(first),
        ranks_right=ranks_right,
        place_right=place_right,
        line_right=line_matches(first, expected.root),
        problems=tuple(problems),
    )


def worst(scores: Sequence[Score]) -> Score:
    """The run that counts where a case was repeated: a false alarm or a miss before anything better."""
    assert scores
    return min(scores, key=lambda one: (not one.false_alarm, one.detected, one.exact))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The gain of a repair, as measured bare and as the report predicted it (shares, 0 to 1)."""

    measured: float
    predicted: float | None

    @property
    def difference_points(self) -> float | None:
        return None if self.predicted is None else 100.0 * (self.predicted - self.measured)

    @property
    def within(self) -> bool:
        difference = self.difference_points
        return difference is not None and abs(difference) <= WHATIF_TOLERANCE_POINTS


def what_if(faulty_s: Sequence[float], repaired_s: Sequence[float], report: Json, causes: Sequence[str]) -> WhatIf:
    """Medians of the bare training times against `recoverable_share` of the first finding.

    The prediction counts only where the first finding has one of `causes`: the share of another cause is no prediction.
    """
    measured = 1.0 - median(repaired_s) / median(faulty_s)
    findings = report.get("findings", [])
    if not findings or findings[0].get("cause") not in causes:
        return WhatIf(measured, None)
    share = (findings[0].get("cost") or {}).get("recoverable_share")
    return WhatIf(measured, None if share is None else float(share))


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a median needs at least one value")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def train_seconds(output: str) -> float | None:
    """The value of the one line `train_seconds=<float>`; null where it is missing or stands there more than once."""
    found = re.findall(r"^train_seconds=([0-9.]+)$", output, re.MULTILINE)
    return float(found[0]) if len(found) == 1 else None
