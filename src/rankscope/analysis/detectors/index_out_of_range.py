"""Finds indices beyond their table, and labels beyond their classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.ends import End
from rankscope.analysis.facts import Facts
from rankscope.analysis.failures import failure
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batch_contents import IndexFailure
from rankscope.records.loading import BatchWait
from rankscope.records.record import Record

TEXT = re.compile(
    r"index out of range in self|Target (?P<label>-?\d+) is out of bounds|"
    r"index (?P<index>-?\d+) is out of bounds for dimension \d+ with size (?P<size>\d+)|"
    r"index (?P<row>-?\d+) is out of bounds for dim(ension)? with size (?P<rows>\d+)|"
    r"Class values must be (smaller than num_classes|non-negative)|"
    r"indices (should|must) be (within|smaller)|t >= 0 && t < n_classes"
)
"""Of torch's own errors, about an index into a tensor. Those of lists and arrays are another matter."""
SAME_FAILURE_NS = 5_000_000_000
"""Between the call that raised and the end of the process: exception handlers may write something before."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """One call that raised."""

    position: int
    step: int
    time_ns: int
    place: Place | None
    function: str
    table: str
    value: int
    size: int
    wrong: int
    sample: int

    @property
    def words(self) -> str:
        if self.table or self.function == "embedding":
            return f"index {self.value} is beyond {self.table or 'an embedding table'} of {self.size} rows"
        return f"label {self.value} is beyond the {self.size} classes of {self.function}"


class IndexOutOfRange(Detector):
    """An index is beyond its table, or a label beyond its classes.

    ## What it is
    A token id at or above the rows of an embedding (a padding id equal to the vocabulary size, a tokenizer with more
    tokens than the model), a label that the model has no class for, a negative index.

    ## What shows it
    The call that raised: the index, the size of the table or the number of classes, the place in the batch. On a
    device the error comes later and elsewhere; there the text of the exception tells.

    ## What else looks like it
    `list index out of range` in code of the program's own has nothing to do with a batch.

    ## What to do
    Compare the largest id of the data with the rows of the table; enlarge the table or map the id; give padding an id
    of its own, and labels that do not count the value of `ignore_index`.
    """

    name = "index-out-of-range"
    needs: ClassVar[tuple[type[Record], ...]] = ()
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        raised = [one for position in range(facts.size) for one in _raised(facts, position)]
        stopped = failure(facts)
        ends = [end for end in stopped.roots if TEXT.search(end.exception)] if stopped is not None else []
        if ends:
            yield self._stop(facts, ends, raised)
        elif raised and stopped is None:
            yield self._caught(facts, raised)

    def _stop(self, facts: Facts, ends: list[End], raised: list[_Failure]) -> Finding:
        """The run ended by it."""
        causes = [one for end in ends if (one := _cause(end, raised)) is not None]
        first, end = (causes[0] if causes else None), ends[0]
        positions = tuple(sorted({end.position for end in ends}))
        place = end.place or (first.place if first is not None else None)
        words = first.words if first is not None else _text(end.exception)
        evidence = (
            tuple(item for one in causes for item in _evidence(facts, one))
            if causes
            else (Evidence("steps it had finished", float(end.step), "count", facts.numbers((end.position,))),)
        )
        return Finding(
            cause=self.name,
            severity="critical",
            confidence=0.97 if first is not None else 0.9,
            title=f"{wording.numbered(facts.numbers(positions))}: {words}, in step {end.step}{wording.at(place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=_component(first, place),
            location=wording.location(place),
            first_step=end.step,
            last_step=None,
            cost=Cost(None, None, None),
            evidence=evidence,
            next=NEXT,
        )

    def _caught(self, facts: Facts, raised: list[_Failure]) -> Finding:
        """The program caught the errors and went on."""
        first = min(raised, key=lambda one: one.time_ns)
        positions = tuple(sorted({one.position for one in raised}))
        return Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{wording.numbered(facts.numbers(positions))}: {first.words}, in step {first.step}; the program "
            f"went on{wording.at(first.place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=_component(first, first.place),
            location=wording.location(first.place),
            first_step=first.step,
            last_step=max(one.step for one in raised),
            cost=Cost(None, None, None),
            evidence=(Evidence("calls that raised", float(len(raised)), "count"), *_evidence(facts, first)),
            next=NEXT,
        )


NEXT = (
    "compare the largest id or label in the data with the size of the table or the number of classes",
    "look at the sample named in the evidence, in the batch of that rank",
)


def _raised(facts: Facts, position: int) -> Iterator[_Failure]:
    rows = facts.rows(IndexFailure, position, window=False)
    names = facts.tables.names.get(facts.ranks[position].pid, {})
    fields = ("function", "table", "value", "size", "wrong", "sample")
    values = {field: column(rows, IndexFailure, field).tolist() for field in fields}
    for i, name in enumerate(rows["name"].tolist()):
        yield _Failure(
            position, int(rows["step"][i]), int(rows["time_ns"][i]), facts.place(position, int(name)),
            names.get(values["function"][i], ""), names.get(values["table"][i], ""), values["value"][i],
            values["size"][i], values["wrong"][i], values["sample"][i],
        )  # fmt: skip


def _cause(end: End, raised: list[_Failure]) -> _Failure | None:
    """The call that the exception of a rank came from."""
    mine = [one for one in raised if one.position == end.position and 0 <= end.time_ns - one.time_ns < SAME_FAILURE_NS]
    return mine[-1] if mine else None


def _text(exception: str) -> str:
    found = TEXT.search(exception)
    groups = {} if found is None else {key: value for key, value in found.groupdict().items() if value is not None}
    if "label" in groups:
        return f"label {groups['label']} is beyond the classes of the loss"
    if "size" in groups or "rows" in groups:
        index, size = groups.get("index", groups.get("row")), groups.get("size", groups.get("rows"))
        return f"index {index} is beyond a dimension of {size}"
    return exception.partition(": ")[2][:120] or exception[:120]


def _component(first: _Failure | None, place: Place | None) -> str | None:
    if first is not None:
        return first.table or first.function
    return place.function if place is not None else None


def _evidence(facts: Facts, one: _Failure) -> Iterator[Evidence]:
    rank = facts.numbers((one.position,))
    yield Evidence("the first index out of range", float(one.value), "", rank)
    yield Evidence("rows of the table" if one.function == "embedding" else "classes", float(one.size), "count", rank)
    yield Evidence("indices out of range in that call", float(one.wrong), "count", rank)
    yield Evidence("place of the first one in its batch", float(one.sample), "", rank)
    waits = facts.rows(BatchWait, one.position, window=False)
    before = waits[waits["time_ns"] <= np.int64(one.time_ns)]
    if len(before):
        ordinal = float(column(before[-1:], BatchWait, "ordinal")[0])
        yield Evidence("number of that batch, from 0, in its pass over the loader", ordinal, "", rank)
