"""What the HTML report draws beside the report itself; saved in a file of its own because it is large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from rankscope.report.document import decode, encode

SCHEMA = "rankscope.details/1"

MAX_COLUMNS = 400
"""More columns than this are narrower than a pixel on a phone and only make the file large."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """What one rank did for a while. Times count from the start of the step, on the common clock."""

    rank: int
    start_us: float
    duration_us: float
    phase: str
    name: str
    kind: Literal["work", "wait", "communication"]
    critical: bool = False
    """On the critical path: the step would have been shorter without it."""


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """One step of all ranks on one clock."""

    step: int
    label: Literal["slowest", "typical"]
    start_ns: int
    spans: tuple[TimelineSpan, ...]
    left_out: int = 0
    """Spans that are not drawn: of each rank the last ones of the step."""


@dataclass(frozen=True, slots=True)
class Heat:
    """Time in ms by rank and step, at most MAX_COLUMNS columns wide."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    """First step of each column."""
    values: tuple[tuple[float | None, ...], ...]
    """`values[i][j]`: rank `ranks[i]`, the largest value of column j; None where nothing was recorded."""
    what: str
    """What the numbers are, for example `time in the data phase`."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step time in ms of each rank, at most MAX_COLUMNS points wide."""

    steps: tuple[int, ...]
    ms: dict[int, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines of a source file; `lines[0]` is line number `first_line`."""

    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Marker:
    """Something that happened at a step, to be marked in charts over steps."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Details:
    """All drawings of a report; each is left out where the run gave nothing to draw."""

    steps: tuple[StepTimeline, ...] = ()
    heat: Heat | None = None
    sources: dict[str, tuple[Snippet, ...]] = field(default_factory=dict)
    """By `Location.file`: the lines around each place that a finding names."""
    step_ms: StepTimes | None = None
    markers: tuple[Marker, ...] = ()


def heat_of(ranks: Sequence[int], steps: Sequence[int], values: Sequence[Sequence[float | None]], what: str) -> Heat:
    """A heat map of `values[rank][step]`, binned so that no column is lost: each keeps its largest value."""
    return Heat(tuple(ranks), first_of_bins(steps), tuple(max_of_bins(row) for row in values), what)


def step_times_of(steps: Sequence[int], ms: dict[int, Sequence[float | None]]) -> StepTimes:
    """Step times binned like a heat map."""
    return StepTimes(first_of_bins(steps), {rank: max_of_bins(row) for rank, row in ms.items()})


def first_of_bins(steps: Sequence[int]) -> tuple[int, ...]:
    """The first step of each of at most MAX_COLUMNS equal bins."""
    size = _bin_size(len(steps))
    return tuple(steps[at] for at in range(0, len(steps), size))


def max_of_bins(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """The largest value of each of at most MAX_COLUMNS equal bins; None where a bin holds no value."""
    size = _bin_size(len(values))
    bins = (values[at : at + size] for at in range(0, len(values), size))
    return tuple(max((value for value in one if value is not None), default=None) for one in bins)


def details_to_json(details: Details) -> str:
    """The details as JSON in one line."""
    return encode(SCHEMA, msgspec.to_builtins(details, str_keys=True), indent=-1) + "\n"


def details_from_json(text: str | bytes, source: str) -> Details:
    """The details in `text`; UserError that names the field and `source`, the file it comes from."""
    return decode(text, SCHEMA, Details, source)


def _bin_size(count: int) -> int:
    return max(1, -(-count // MAX_COLUMNS))
