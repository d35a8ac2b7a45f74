"""Finds weights that began as one and have become two."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tensors import inventory, weights
from rankscope.analysis.wiring import finding, is_matrix
from rankscope.base.finding import Evidence, Finding
from rankscope.records.inventory import Model, Parameter
from rankscope.records.numerics import WeightStat

TABLE = ("emb", "wte", "tok")
"""In the path or the class of a table of embeddings."""
Pair = tuple[Parameter, Parameter]


class TiedWeightsBroken(Detector):
    """An embedding and an output layer that should share their weights have two copies, which drift apart.

    ## What it is
    The output layer got a copy of the embedding (`.clone()`, `.data.copy_`, a new `Parameter`), or sharding, resizing
    or conversion replaced one of the two and the tie was not made again.

    ## What shows it
    An embedding and the weight of another kind of layer that have the same shape and began with exactly the same
    values, but lie in different memory and differ afterwards; or two paths that led to one parameter before, and do
    not any more.

    ## What else looks like it
    Copies of whole layers (`nn.TransformerEncoder`, twin networks, a teacher) begin with the same values too; they are
    copies of one kind of layer. Copies that are kept equal by summing their gradients do not drift.

    ## What to do
    `head.weight = embedding.weight` after everything that makes new parameters, and before the optimizer is built.
    """

    name = "tied-weights-broken"
    needs = (WeightStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        stocks = {p: stock for p in range(facts.size) if (stock := inventory(facts, p)) is not None}
        if not stocks:
            raise CannotExamine("no inventory of the models")
        position = min(stocks)
        for model in stocks[position].models:
            pairs = list(_copies(facts, position, model)) or list(_untied(facts, position, model))
            for table, head in pairs:
                found = _apart(facts, position, model, table, head)
                if found is None:
                    continue
                step, distance = found
                yield finding(
                    facts,
                    self.name,
                    sorted(stocks),
                    f"{head.path} began as {table.path} but is a copy of its own: the two drift apart",
                    severity="warning",
                    confidence=0.85,
                    component=f"{table.path}, {head.path}",
                    phase="optimizer",
                    first_step=step,
                    evidence=(
                        Evidence("sampled steps after which the two differ", float(distance), "count"),
                        Evidence("elements of each", float(np.prod(table.shape)), "count"),
                    ),
                    next=(
                        f"tie them: assign the parameter itself (`{head.path} = {table.path}`), no copy of it",
                        "tie after sharding, resizing and loading, and before the optimizer is built",
                    ),
                )


def _copies(facts: Facts, position: int, model: Model) -> Iterator[Pair]:
    """Tables and other weights of another class with the same values before the first step."""
    matrices = [p for p in model.parameters if is_matrix(p) and p.trainable]
    tables = [p for p in matrices if _is_table(p)]
    for table in tables:
        for other in matrices:
            fits = other.shape == table.shape and other.storage != table.storage
            another = other.owner != table.owner and not _is_table(other)
            if fits and another and _began_equal(facts, position, model, table, other):
                yield table, other


def _untied(facts: Facts, position: int, model: Model) -> Iterator[Pair]:
    """Parameters that an earlier inventory had as one."""
    now = {p.path: p for p in model.parameters}
    for stock in facts.tables.inventories.get(facts.ranks[position].pid, ())[:-1]:
        for before in (p for m in stock.models if m.name == model.name for p in m.parameters):
            for path in before.also:
                if before.path in now and path in now and now[path].storage != now[before.path].storage:
                    yield now[before.path], now[path]
                    return


def _is_table(parameter: Parameter) -> bool:
    words = f"{parameter.owner} {parameter.path}".lower()
    return any(word in words for word in TABLE)


def _began_equal(facts: Facts, position: int, model: Model, one: Parameter, other: Parameter) -> bool:
    """Whether two parameters had the same values before the first step: their sizes agree to the last bit, which
    random numbers do in one case of ten million."""
    series = [weights(facts).get((model.name, p.path)) for p in (one, other)]
    sizes = []
    for s in series:
        if s is None or position not in s.positions or not len(s.steps) or s.steps[0] != 0:
            return False
        if not s.of(position, "compared")[0] or s.of(position, "zeros")[0]:
            return False
        sizes.append(float(s.of(position, "rms")[0]))
    return sizes[0] == sizes[1] > 0


def _apart(facts: Facts, position: int, model: Model, one: Parameter, other: Parameter) -> tuple[int, int] | None:
    """(first step, number of sampled steps) after which the two differ; None where they do not at the end."""
    a, b = weights(facts).get((model.name, one.path)), weights(facts).get((model.name, other.path))
    if a is None or b is None or position not in a.positions or position not in b.positions:
        return None
    common = np.intersect1d(a.steps, b.steps)
    prints = [s.where(np.isin(s.steps, common)).of(position, "fingerprint") for s in (a, b)]
    differ = prints[0] != prints[1]
    if not len(differ) or not differ[-1]:
        return None
    return int(common[np.argmax(differ)]), int(differ.sum())
