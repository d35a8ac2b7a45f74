"""Finds evaluations in which dropout or batch statistics are still at work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, parse_place
from rankscope.analysis.tables import Rows, column
from rankscope.analysis.wiring import finding
from rankscope.base.finding import Evidence, Finding
from rankscope.records.loading import BatchWait
from rankscope.records.training import Forward
from rankscope.records.wiring import EvaluationPass

Ints = NDArray[np.int64]

FEWEST = 2
"""Passes that show it."""
MONTE_CARLO = 4
"""Passes in a row with the same input: who does that wants the spread of the answers, and dropout for it."""
NAMES = re.compile(r"(^|[_.])(eval(uat(e|ion|or))?|val(id(at(e|ion))?)?|test(ing)?)($|[_.])", re.IGNORECASE)
"""Functions that evaluate."""
PREDICT = re.compile(r"(^|[_.])(infer(ence)?|predict(ion)?s?)($|[_.])", re.IGNORECASE)
"""Functions that evaluate, or that make labels or act inside a training step: then once a step."""

TRAINING_MODE, LAYERS_ON, CODE = "training mode", "layers on", "code"


@dataclass(frozen=True, slots=True)
class _Case:
    why: str
    position: int
    model: str
    place: Place | None
    first_step: int
    passes: int
    dropouts: int
    batch_norms: int
    component: str


class DropoutInEvaluation(Detector):
    """The model is evaluated while dropout, or statistics of the batch, are still at work.

    ## What it is
    The evaluation does not call `model.eval()`; or a function is called that drops whatever the mode is:
    `F.dropout(x, p)` is in training mode unless it is told otherwise.

    ## What shows it
    Passes without gradients, by a function that evaluates or over a loader that never feeds a training step, of a model
    in training mode that has dropout or batch normalisation. Or passes of a model in evaluation mode that draw random
    numbers, and code in it that calls a dropout function and never looks at `self.training`.

    ## What else looks like it
    A generator or a policy that runs without gradients inside training, a momentum encoder, `update_bn`: they are not
    evaluated. Many passes over the same input are a Monte Carlo estimate. Sampling inside a model (a VAE) draws random
    numbers without dropout.

    ## What to do
    `model.eval()` before and `model.train()` after each evaluation; `F.dropout(x, p, self.training)` or `nn.Dropout`.
    """

    name = "dropout-in-evaluation"
    needs = (EvaluationPass,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        cases = [case for position in range(facts.size) for case in _cases(facts, position)]
        for why, model in dict.fromkeys((case.why, case.model) for case in cases):
            mine = [case for case in cases if (case.why, case.model) == (why, model)]
            first = min(mine, key=lambda case: case.first_step)
            where = f" ({first.place.short})" if first.place is not None else ""
            parts = [f"{n} {what}" for n, what in ((first.dropouts, "dropout"), (first.batch_norms, "batch norm")) if n]
            title = {
                TRAINING_MODE: f"{model} is evaluated in training mode{where}: {' and '.join(parts)} layers at work",
                LAYERS_ON: f"{first.dropouts} dropout layers of {model} are at work in evaluation mode{where}",
                CODE: f"{first.component} drops in evaluation mode too{where}: its code never asks for `self.training`",
            }[why]
            yield finding(
                facts,
                self.name,
                [case.position for case in mine],
                title,
                severity="warning",
                confidence={TRAINING_MODE: 0.85, LAYERS_ON: 0.7, CODE: 0.85}[why],
                component=first.component,
                place=first.place,
                phase="evaluation",
                first_step=first.first_step,
                evidence=(
                    Evidence("such passes among those looked at", float(sum(c.passes for c in mine)), "count"),
                    Evidence("dropout layers in training mode", float(first.dropouts), "count"),
                    Evidence("batch norm layers in training mode", float(first.batch_norms), "count"),
                ),
                next=(
                    "call `model.eval()` before the evaluation and `model.train()` after it"
                    if why != CODE else "pass `training=self.training` to the dropout function, or use `nn.Dropout`",
                    "evaluate the same batch twice: the two outputs must be equal",
                ),
            )  # fmt: skip


def _cases(facts: Facts, position: int) -> Iterator[_Case]:
    pid = facts.ranks[position].pid
    rows = facts.rows(EvaluationPass, position, window=False)
    models = column(rows, EvaluationPass, "model")
    for id in np.unique(models).tolist():
        mine = rows[models == id]
        model = facts.tables.name(pid, id)
        training = column(mine, EvaluationPass, "training") > 0
        random = column(mine, EvaluationPass, "random") > 0
        dropouts = column(mine, EvaluationPass, "dropouts")
        norms = column(mine, EvaluationPass, "batch_norms")
        code = column(mine, EvaluationPass, "dropout_code") > 0
        yield from _case(facts, position, CODE, model, mine[~training & code])
        yield from _case(facts, position, LAYERS_ON, model, mine[~training & ~code & random & (dropouts > 0)])
        suspects = mine[training & (dropouts + norms > 0)]
        if len(suspects) and _is_trained(facts, position, id):
            at = _evaluates(facts, position, suspects)
            yield from _case(facts, position, TRAINING_MODE, model, suspects[at])


def _case(facts: Facts, position: int, why: str, model: str, rows: Rows) -> Iterator[_Case]:
    if len(rows) < FEWEST or column(rows, EvaluationPass, "repeated").max() >= MONTE_CARLO:
        return
    place = facts.place(position, int(column(rows, EvaluationPass, "site")[0]))
    component = model
    if why == CODE:
        component, _, text = facts.tables.name(facts.ranks[position].pid, int(rows["name"][0])).partition("|")
        place = parse_place(text) if text.count(":") > 1 else place
    dropouts, norms = (int(column(rows, EvaluationPass, name)[0]) for name in ("dropouts", "batch_norms"))
    yield _Case(why, position, model, place, int(rows["step"][0]), len(rows), dropouts, norms, component)


def _is_trained(facts: Facts, position: int, model: int) -> bool:
    """Whether the model is one that trains: a teacher, or an encoder that follows another one, is none."""
    rows = facts.rows(Forward, position, window=False)
    return bool(((column(rows, Forward, "model") == model) & (column(rows, Forward, "grad") > 0)).any())


def _evaluates(facts: Facts, position: int, rows: Rows) -> NDArray[np.bool_]:
    """Which passes belong to an evaluation, by the function that makes them or by the loader that feeds them."""
    pid = facts.ranks[position].pid
    sites = [facts.tables.name(pid, id) for id in column(rows, EvaluationPass, "site").tolist()]
    # Several passes in one place between two steps: a single batch may be anything.
    several = np.array([(rows["step"] == step).sum() >= FEWEST for step in rows["step"]])
    functions = [site.rpartition(":")[2] for site in sites]
    by_name = np.array([bool(NAMES.search(name)) for name in functions])
    by_name |= several & np.array([bool(PREDICT.search(name)) for name in functions])
    waits = facts.rows(BatchWait, position, window=False)
    waits = waits[column(waits, BatchWait, "ended") == 0]
    if not len(waits):
        return by_name
    forwards = facts.rows(Forward, position, window=False)
    forwards = forwards[column(forwards, Forward, "grad") > 0]
    training = set(_loaders(waits, forwards["time_ns"]).tolist())
    mine = _loaders(waits, rows["time_ns"])
    alone = np.array([loader > 0 and loader not in training for loader in mine.tolist()])
    several = np.array([(alone & (rows["step"] == step)).sum() >= FEWEST for step in rows["step"]])
    return np.asarray(by_name | (alone & several))


def _loaders(waits: Rows, times: Ints) -> Ints:
    """The loader that gave the last batch before each moment; 0: none."""
    at = np.searchsorted(waits["time_ns"], times) - 1
    return np.asarray(np.where(at >= 0, column(waits, BatchWait, "loader")[np.maximum(at, 0)], 0))
