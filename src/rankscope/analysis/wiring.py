"""Shared by the detectors of wrong wiring: odd parts of models, what learns and what does not, and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, parse_place
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import Series
from rankscope.base.finding import Cost, Evidence, Finding, Severity
from rankscope.records.inventory import Parameter
from rankscope.records.numerics import LossValue
from rankscope.records.wiring import OddPart

MOST_PATHS = 3
"""Of parameters in a title or a component: more are not read."""
FALLING = 0.95
"""Of the loss in the first quarter of a run that the last quarter stays below, where the run learns."""
FEWEST_LOSSES = 20
NORMS = ("norm", "ln", "bn", "layernorm", "batchnorm", "rmsnorm", "groupnorm")


@dataclass(frozen=True, slots=True)
class Odd:
    """The last that was seen of an odd part on one rank."""

    position: int
    model: str
    path: str
    elements: int
    parameters: int
    held: int
    training: bool
    text: str
    """Its class, or the place of the code concerned."""
    step: int
    """When it was first seen."""

    @property
    def place(self) -> Place | None:
        return parse_place(self.text) if self.text.count(":") > 1 else None

    def holds(self, model: str, path: str) -> bool:
        """Whether a parameter belongs to it."""
        if self.path == self.model:
            return model == self.model
        return (not self.model or model == self.model) and path.startswith(f"{self.path}.")


def odd_parts(facts: Facts, why: int) -> list[Odd]:
    """Odd parts of one kind, by rank, model and path."""
    found: dict[tuple[int, str, str], Odd] = {}
    for position in range(facts.size):
        pid = facts.ranks[position].pid
        rows = facts.rows(OddPart, position, window=False)
        rows = rows[column(rows, OddPart, "why") == why]
        names = ("name", "model", "elements", "parameters", "held", "training", "place", "step")
        fields = [column(rows, OddPart, name).tolist() for name in names]
        for name, model, elements, parameters, held, training, place, step in zip(*fields, strict=True):
            texts = [facts.tables.name(pid, id) for id in (model, name, place)]
            before = found.get((position, texts[0], texts[1]))
            found[position, texts[0], texts[1]] = Odd(
                position, texts[0], texts[1], elements, parameters, held, bool(training), texts[2],
                before.step if before is not None else step,
            )  # fmt: skip
    return list(found.values())


def is_norm(parameter: Parameter) -> bool:
    """Whether it scales or shifts what a normalisation gives out, by the class or the name of its owner."""
    if len(parameter.shape) != 1:
        return False
    parts = parameter.path.lower().split(".")[:-1]
    words = {word.rstrip("0123456789") for part in parts for word in part.split("_")}
    return "norm" in parameter.owner.lower() or bool(words & set(NORMS))


def is_matrix(parameter: Parameter) -> bool:
    """Whether it mixes inputs into outputs, or is a table: what a model learns with."""
    return len(parameter.shape) >= 2


def elements(parameters: Iterable[Parameter]) -> int:
    """How many numbers they have."""
    return sum(int(np.prod(p.shape)) for p in parameters)


def never_changes(series: Series) -> bool:
    """Whether it was the same after each sampled step, and changed in none of them."""
    prints = series["fingerprint"]
    return bool((prints == prints[:, :1]).all() and not (series["changed"] * series["compared"]).any())


def listed(paths: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    if len(paths) <= MOST_PATHS + 1:
        return ", ".join(paths)
    return f"{', '.join(paths[:MOST_PATHS])} and {len(paths) - MOST_PATHS} more"


def loss_falls(facts: Facts, position: int) -> bool | None:
    """Whether a rank's loss is lower at the end of the run than at its beginning; None where that is not known."""
    values = column(facts.rows(LossValue, position, window=False), LossValue, "value")
    values = values[np.isfinite(values)]
    if len(values) < FEWEST_LOSSES:
        return None
    quarter = len(values) // 4
    first, last = np.median(values[:quarter]), np.median(values[-quarter:])
    return bool(last < first - (1 - FALLING) * abs(first))


def finding(
    facts: Facts,
    cause: str,
    positions: Sequence[int],
    title: str,
    *,
    severity: Severity,
    confidence: float,
    component: str,
    evidence: Sequence[Evidence],
    next: Sequence[str],
    first_step: int,
    place: Place | None = None,
    phase: str | None = None,
) -> Finding:
    """A finding whose cost is not one of time."""
    numbers = facts.numbers(sorted(set(positions)))
    return Finding(
        cause=cause,
        severity=severity,
        confidence=confidence,
        title=title,
        ranks=numbers,
        all_ranks=len(numbers) == facts.size,
        phase=phase,
        component=component,
        location=wording.location(place),
        first_step=first_step,
        last_step=max(first_step, facts.all_steps - 1),
        cost=Cost(None, None, None),
        evidence=tuple(evidence),
        next=tuple(next),
    )
