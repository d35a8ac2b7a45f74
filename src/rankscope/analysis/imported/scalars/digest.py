"""What is kept of one event file: its verdicts on each loss, and short curves to compare with those of other files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.examiner import Digest
from rankscope.analysis.imported.scalars import names
from rankscope.analysis.imported.scalars.curves import Curve, continued, reduced
from rankscope.analysis.imported.scalars.losses import Jump, NotFinite, jumps, not_finite
from rankscope.analysis.imported.scalars.names import Name, name, not_made_to_fall
from rankscope.analysis.imported.scalars.speed import Drop, drop
from rankscope.records.imported.scalar_log import ScalarLog

MOST_LOSSES: Final = 64
"""Tags of losses that are looked at; the ones with most points first."""
FIRST: Final = 5
"""Points that make the level of the start."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss of one file."""

    tag: str
    name: Name
    points: int
    curve: Curve
    """Reduced."""
    start: float
    """Median of the first few points."""
    not_finite: NotFinite | None
    jumps: tuple[Jump, ...]


@dataclass(frozen=True, slots=True)
class ScalarDigest(Digest):
    run: str
    points: int
    tags: int
    losses: tuple[Loss, ...]
    rate: Curve | None
    """The learning rate, reduced."""
    drops: tuple[Drop, ...]
    why_not: str | None
    """Why the losses need not fall."""
    first_ns: int
    damaged: int
    truncated_bytes: int


def digest(log: ScalarLog) -> ScalarDigest:
    """Everything that is said of a file later."""
    known = {tag: name(tag, log.run) for tag in log.tags}
    wanted = {tag: _curve(log, number) for number, tag in enumerate(log.tags) if known[tag].kind != names.OTHER}
    why_not = not_made_to_fall(log.tags)
    rate = next((c for tag, c in wanted.items() if known[tag].kind == names.RATE), None)
    losses = sorted((tag for tag in wanted if known[tag].kind == names.LOSS), key=lambda tag: -len(wanted[tag].values))
    data = next((c for tag, c in wanted.items() if known[tag].kind == names.DATA_TIME), None)
    drops = [
        found
        for tag, c in wanted.items()
        if known[tag].kind in (names.THROUGHPUT, names.STEP_TIME)
        and (found := drop(c, known[tag].kind == names.STEP_TIME, data)) is not None
    ]
    return ScalarDigest(
        file=log.file,
        rank=log.rank,
        run=log.run,
        points=len(log.value),
        tags=len(log.tags),
        losses=tuple(_loss(wanted[tag], known[tag], rate, why_not is None) for tag in losses[:MOST_LOSSES]),
        rate=reduced(rate) if rate is not None else None,
        drops=tuple(drops),
        why_not=why_not,
        first_ns=int(log.time_ns[0]) if len(log.time_ns) else 0,
        damaged=log.num_damaged,
        truncated_bytes=log.truncated_bytes,
    )


def _curve(log: ScalarLog, number: int) -> Curve:
    rows = log.tag == number
    return continued(Curve(log.tags[number], log.step[rows], log.value[rows], log.time_ns[rows]))


def _loss(curve: Curve, what: Name, rate: Curve | None, falls: bool) -> Loss:
    short = reduced(curve) if curve.finite.any() else curve.only(np.zeros(len(curve.values), bool))
    found = jumps(curve, rate) if falls and what.main and not what.evaluation else []
    first = curve.values[curve.finite][:FIRST]
    start = float(np.median(first)) if len(first) else float("nan")
    return Loss(curve.tag, what, len(curve.values), short, start, not_finite(curve), tuple(found))
