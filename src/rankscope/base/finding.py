"""What a finding is: something wrong, with its place, its cost and the values that show it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rankscope.base.causes import CAUSES, KINDS, cause

Severity: TypeAlias = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finding takes from the run. None: not known, which is not the same as nothing."""

    ms_per_step: float | None
    share: float | None
    """Of the mean step time, 0 to 1."""
    recoverable_share: float | None
    """Of the mean step time, what the run would gain without the fault."""

    def __post_init__(self) -> None:
        for name in ("ms_per_step", "share", "recoverable_share"):
            value = getattr(self, name)
            if value is None:
                continue
            if not math.isfinite(value):
                raise ValueError(f"cost.{name} is {value}; write None for what is not known")
            if name != "ms_per_step" and not 0 <= value <= 1:
                raise ValueError(f"cost.{name} is {value}; a share is between 0 and 1")
            object.__setattr__(self, name, float(value))  # numpy's numbers are no JSON


@dataclass(frozen=True, slots=True)
class Evidence:
    """A measured value that supports a finding."""

    text: str
    value: float | None
    """None where what was measured is no finite number: JSON cannot hold a NaN, so the text has to name it."""
    unit: str
    """`ns`, `us`, `ms`, `s`, `bytes`, `share` (0 to 1), `%`, `x` (a ratio), `count`, or any other unit as written."""
    ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.value is not None:
            object.__setattr__(self, "value", float(self.value) if math.isfinite(self.value) else None)
        object.__setattr__(self, "ranks", tuple(int(rank) for rank in self.ranks))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong. `ranks` are those that cause it, never those that suffer from it."""

    cause: str
    severity: Severity
    confidence: float
    title: str
    """One line that names cause, place and cost."""
    ranks: tuple[int, ...]
    all_ranks: bool
    phase: str | None
    component: str | None
    location: Location | None
    first_step: int | None
    last_step: int | None
    cost: Cost
    evidence: tuple[Evidence, ...]
    explains: tuple[str, ...] = ()
    """Ids of the findings that only follow from this one."""
    next: tuple[str, ...] = ()
    """What to do, most useful first."""
    id: str = ""
    kind: str = ""
    """Follows from the cause; only a cause that is not in our catalogue (of a plug-in) has to say it."""

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"finding {self.cause} has no evidence; a finding without a measured value is not shown")
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity {self.severity!r} is none of {', '.join(SEVERITIES)}")
        object.__setattr__(self, "confidence", float(self.confidence))
        object.__setattr__(self, "ranks", tuple(int(rank) for rank in self.ranks))
        for name in ("first_step", "last_step"):
            step = getattr(self, name)
            object.__setattr__(self, name, int(step) if step is not None else None)
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence {self.confidence} is not between 0 and 1")
        if self.cause in CAUSES or not self.kind:
            kind = cause(self.cause).kind
            if self.kind not in ("", kind):
                raise ValueError(f"{self.cause} is of kind {kind}, not {self.kind}")
            object.__setattr__(self, "kind", kind)
        elif self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} of {self.cause} is none of {', '.join(KINDS)}")
