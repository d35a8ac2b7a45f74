"""Finds features that have one and the same value in all samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batch_contents import FeatureRange

FEWEST_SAMPLES = 100
"""A feature that is another one in 5 % of the samples would have shown with a probability of 99 % by then."""
FEWEST_BATCHES = 3
SPARSE = 0.05
"""Share of zeros among the features that vary from which a zero says nothing: words, one-hot codes, black margins."""
MOST_SHARE = 0.5
"""Of the features that may be constant in a table whose others are worth something."""
FIELDS = ("first", "features", "value", "samples", "source", "constant", "zeros", "batches")


@dataclass(frozen=True, slots=True)
class _Table:
    """What one rank has seen of one tensor so far."""

    position: int
    source: str
    path: str
    step: int
    first: int
    features: int
    value: float
    samples: int
    constant: int
    zeros: float
    batches: int

    @property
    def dull(self) -> bool:
        """Whether it has features that should vary, and do not."""
        if not self.constant or self.samples < FEWEST_SAMPLES or self.batches < FEWEST_BATCHES:
            return False
        if self.constant == self.features:
            return True
        if self.constant == 1 and self.value == 1.0:
            return False  # the column of an intercept
        return self.zeros < SPARSE and self.constant <= MOST_SHARE * self.features


class ConstantFeatures(Detector):
    """A feature has the same value in every sample.

    ## What it is
    A column that was filled with a default because it could not be read, that was divided away, or that comes out of
    a broken transform: the model cannot learn from it. On one rank alone, a broken shard of the data.

    ## What shows it
    Smallest and largest value of each column of [samples, features] batches, over all batches that were looked at.

    ## What else looks like it
    Words counted, one-hot codes and the margins of images are zero most of the time: tables with many zeros are left
    out. A column of ones is an intercept.

    ## What to do
    Look at the column where it is read and where it is transformed; drop it where it says nothing.
    """

    name = "constant-features"
    needs = (FeatureRange,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        tables = [table for position in range(facts.size) for table in _tables(facts, position)]
        enough = [t for t in tables if t.samples >= FEWEST_SAMPLES and t.batches >= FEWEST_BATCHES]
        if not enough:
            raise CannotExamine(f"fewer than {FEWEST_SAMPLES} samples of tables of features were looked at")
        for source, path in dict.fromkeys((t.source, t.path) for t in enough):
            same = [t for t in enough if (t.source, t.path) == (source, path)]
            dull = [t for t in same if t.dull]
            if dull:
                yield self._finding(facts, same, dull)

    def _finding(self, facts: Facts, same: list[_Table], dull: list[_Table]) -> Finding:
        last = dull[-1]
        positions = tuple(sorted({t.position for t in dull}))
        everything = last.constant == last.features
        more = f" and {last.constant - 1} more" if last.constant > 1 else ""
        what = f"all {last.features} features" if everything else f"feature {last.first}{more}"
        told = "have one value" if everything or more else f"has the value {last.value:.3g}"
        only = f" on {wording.ranks(facts, positions)}" if len(positions) < facts.size else ""
        return Finding(
            cause=self.name,
            severity="critical" if everything else "warning",
            confidence=0.9 if everything or only else 0.75,
            title=f"{what} of {last.path} of {last.source} {told} in all samples{only}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="data",
            component=last.source,
            location=None,
            first_step=0,
            last_step=max(t.step for t in dull),
            cost=Cost(None, None, None),
            evidence=(
                Evidence("features that never varied", float(last.constant), "count", facts.numbers(positions)),
                Evidence("features", float(last.features), "count"),
                Evidence(f"value of feature {last.first}", last.value, ""),
                Evidence("samples looked at", float(sum(t.samples for t in same)), "count"),
            ),
            next=(
                "look at that column where it is read, and after each transform",
                "drop it where it says nothing; repair it where it should",
            ),
        )


def _tables(facts: Facts, position: int) -> Iterator[_Table]:
    """The newest look at each tensor of a rank's loaders."""
    rows = facts.rows(FeatureRange, position, window=False)
    names = facts.tables.names.get(facts.ranks[position].pid, {})
    loaders = column(rows, FeatureRange, "loader").tolist()
    values = {field: column(rows, FeatureRange, field).tolist() for field in FIELDS}
    newest: dict[tuple[int, int, int], int] = {}
    for i, (name, loader) in enumerate(zip(rows["name"].tolist(), loaders, strict=True)):
        newest[int(name), loader, values["features"][i]] = i
    for (name, _, features), i in newest.items():
        yield _Table(
            position, names.get(values["source"][i], ""), names.get(name, ""), int(rows["step"][i]),
            values["first"][i], features, values["value"][i], values["samples"][i], values["constant"][i],
            values["zeros"][i] / 255, values["batches"][i],
        )  # fmt: skip
