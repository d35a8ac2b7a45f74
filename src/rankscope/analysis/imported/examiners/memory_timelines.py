"""What memory timelines say: the peak by category, and which category piles up from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.memory.sizes import size
from rankscope.analysis.imported.memory.steps import valleys
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.imported.memory_timeline import CATEGORIES, MemoryTimeline
from rankscope.records.imported.table import Table

FEWEST: Final = 5
"""Low points between steps: the first steps make optimizer states and gradients that stay."""
WARM_UP: Final = 2
"""Of these low points, the first ones, which are not looked at for that reason."""
STEADY: Final = 3.0
"""Largest over smallest growth from one low point to the next: what is made once adds much and then nothing."""
WORTH: Final = 0.05
"""Of the peak, what must have been added in all: low points do not lie at one and the same point of a step."""
MOST_POINTS: Final = 500


@dataclass(frozen=True, slots=True)
class TimelineDigest(Digest):
    """The peak, and what is held between steps."""

    peak: tuple[int, ...]
    """Bytes by category, at the moment of the peak."""
    between: NDArray[np.int64]
    """[low point, category] bytes."""


class MemoryTimelines(Examiner):
    """Sizes by category tell that something piles up, not whose it is: that a memory snapshot shows."""

    reads: ClassVar[type[Table]] = MemoryTimeline

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, MemoryTimeline)
        total = table.bytes.sum(axis=1)
        at = valleys(total)[-MOST_POINTS:]
        return TimelineDigest(table.file, table.rank, tuple(table.bytes[int(total.argmax())].tolist()), table.bytes[at])

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        known = [digest for digest in digests if isinstance(digest, TimelineDigest)]
        short = [digest for digest in known if len(digest.between) < FEWEST]
        found = [finding for digest in known if (finding := _piling_up(digest)) is not None]
        return Answer(
            findings=tuple(found),
            examined=len(short) < len(known),
            not_examined=tuple(
                (
                    "growing-cache",
                    f"a timeline of {FEWEST} steps or more",
                    f"{_name(digest)} shows {len(digest.between)} low points between steps",
                )
                for digest in short
            ),
            notes=tuple(f"{_name(digest)}: {describe(digest)}" for digest in known),
        )


def describe(digest: TimelineDigest) -> str:
    """The peak in one line."""
    largest = sorted(zip(CATEGORIES, digest.peak, strict=True), key=lambda one: -one[1])
    parts = ", ".join(f"{name} {size(held)}" for name, held in largest[:4] if held > 0)
    return f"at most {size(sum(digest.peak))} held: {parts}"


def _piling_up(digest: TimelineDigest) -> Finding | None:
    """The category that has most more, where it has more at each low point than at the one before."""
    rows = digest.between[WARM_UP:] if len(digest.between) >= FEWEST + WARM_UP else digest.between
    if len(rows) < FEWEST:
        return None
    steps = np.diff(rows, axis=0)
    steady = (steps.min(axis=0) > 0) & (steps.max(axis=0) <= STEADY * np.maximum(steps.min(axis=0), 1))
    added = np.where(steady, rows[-1] - rows[0], 0)
    if added.sum() < WORTH * sum(digest.peak):
        return None
    at = int(added.argmax())
    each = int(np.median(steps[:, at]))
    # What autograd keeps for a backward that never comes grows together with the activations it needs.
    graph = bool(steady[CATEGORIES.index("autograd detail")]) and CATEGORIES[at] in ("activation", "autograd detail")
    cause = "retained-graph" if graph else "growing-cache"
    ranks = (digest.rank,) if digest.rank is not None else ()
    who = f"rank {digest.rank}" if digest.rank is not None else _name(digest)
    return Finding(
        cause=cause,
        severity="warning",
        confidence=0.7,
        title=f"{cause}: {who} keeps {size(each)} more of {CATEGORIES[at]} memory with every step, "
        f"{size(int(added[at]))} in all",
        ranks=ranks,
        all_ranks=False,
        phase=None,
        component=CATEGORIES[at],
        location=None,
        first_step=None,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=(
            Evidence("more is held after each step, in the median", each, "bytes", ranks),
            Evidence(f"steps in a row, of {len(digest.between)} that were seen", len(steps), "count", ranks),
            Evidence("was added in all", int(added[at]), "bytes", ranks),
        ),
        next=(
            "take a memory snapshot (torch.cuda.memory._record_memory_history, _dump_snapshot) to see which line it is",
            "detach what is kept over steps: losses and outputs in lists hold the whole graph"
            if graph
            else "look for lists and dictionaries that are filled in every step and never emptied",
        ),
    )


def _name(digest: TimelineDigest) -> str:
    return digest.file.rsplit("/", 1)[-1]
