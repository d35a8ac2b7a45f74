"""Calls of loss functions that were looked at, by the line that calls."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.records.batch_contents import LossCall

Shape = tuple[int, ...]
_FIELDS = (
    "function", "shape", "classes", "rows", "grad", "after_softmax", "indices", "known", "broadcast", "least", "most",
    "least_target", "most_target", "raised",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a loss function."""

    position: int
    step: int
    place: Place | None
    function: str
    shapes: str
    """`[32, 1] against [32]`"""
    classes: int
    rows: int
    """As in `LossCall.rows`."""
    grad: bool
    after_softmax: bool
    indices: bool
    known: bool
    broadcast: int
    least: float
    most: float
    least_target: float
    most_target: float
    raised: bool
    time_ns: int

    @property
    def sizes(self) -> tuple[Shape, Shape]:
        """Shapes of prediction and target."""
        parts = [tuple(int(n) for n in re.findall(r"\d+", part)) for part in self.shapes.split(" against ")]
        return (parts[0], parts[1]) if len(parts) == 2 else ((), ())


def loss_calls(facts: Facts) -> tuple[Call, ...]:
    """All that were looked at on sampled steps, by rank and time."""
    return tuple(call for call in facts.once(_loss_calls) if not call.raised)


def raised_calls(facts: Facts) -> tuple[Call, ...]:
    """Those that raised; of them only the shapes are known."""
    return tuple(call for call in facts.once(_loss_calls) if call.raised)


def by_line(calls: tuple[Call, ...]) -> dict[tuple[str, Place | None], list[Call]]:
    """The calls of each function in each line, on all ranks."""
    found: dict[tuple[str, Place | None], list[Call]] = {}
    for call in calls:
        found.setdefault((call.function, call.place), []).append(call)
    return found


def _loss_calls(facts: Facts) -> tuple[Call, ...]:
    found = []
    for position in range(facts.size):
        rows = facts.rows(LossCall, position, window=False)
        values = {field: column(rows, LossCall, field).tolist() for field in _FIELDS}
        names = facts.tables.names.get(facts.ranks[position].pid, {})
        for i, (name, step) in enumerate(zip(rows["name"].tolist(), rows["step"].tolist(), strict=True)):
            v = {field: values[field][i] for field in _FIELDS}
            found.append(
                Call(
                    position, int(step), facts.place(position, int(name)), names.get(v["function"], ""),
                    names.get(v["shape"], ""), v["classes"], v["rows"], bool(v["grad"]), bool(v["after_softmax"]),
                    bool(v["indices"]), bool(v["known"]), v["broadcast"], v["least"], v["most"], v["least_target"],
                    v["most_target"], bool(v["raised"]), int(rows["time_ns"][i]),
                )
            )  # fmt: skip
    return tuple(found)
