"""Finds models that train while they are in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import inventory, weights
from rankscope.analysis.wiring import finding
from rankscope.analysis.wording import ranks as ranks_of
from rankscope.base.finding import Evidence, Finding, Severity
from rankscope.records.training import Backward, Forward

FEWEST = 3
"""Training steps in a row in evaluation mode: one or two may be a look at something."""
SHARE = 0.05
"""Of the training steps: fewer change nothing that anybody would notice, unless the run ends in that mode."""
DEPEND = ("Dropout", "BatchNorm", "SyncBatch", "DropPath", "StochasticDepth", "DropBlock")
"""Parts of the names of layers that do something else in evaluation mode."""


@dataclass(frozen=True, slots=True)
class _Mode:
    position: int
    model: str
    first_step: int
    steps: int
    share: float
    before: int
    """Training steps in training mode before that."""
    to_the_end: bool


class EvalModeInTraining(Detector):
    """The model trains in evaluation mode.

    ## What it is
    Something called `model.eval()`, a validation or a prediction in the middle of an epoch, and nobody called
    `model.train()` after it. From then on there is no dropout, and batch statistics stand still.

    ## What shows it
    All forward passes with gradients of a step are in evaluation mode, step after step, after others in training mode;
    a backward follows, and the optimizer changes the model's parameters.

    ## What else looks like it
    A teacher in evaluation mode does not change. Normalisation layers that are frozen on purpose leave the model itself
    in training mode. A model that was in evaluation mode from the beginning may be meant so: a remark.

    ## What to do
    `model.train()` right before the training loop goes on, after each evaluation.
    """

    name = "eval-mode-in-training"
    needs = (Forward, Backward)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        found = [mode for position in range(facts.size) for mode in _modes(facts, position)]
        for model in dict.fromkeys(mode.model for mode in found):
            mine = [mode for mode in found if mode.model == model]
            first = min(mine, key=lambda mode: mode.first_step)
            layers = _depending(facts, first)
            turned = first.before > 0
            if not turned and not layers:
                continue
            severity: Severity = "warning" if turned and layers else "info"
            when = f"from step {first.first_step} on" if first.to_the_end else f"first at step {first.first_step}"
            why = f"{len(layers)} layers ({', '.join(sorted(set(layers))[:3])})" if layers else "no layer that we know"
            where = f" on {ranks_of(facts, [m.position for m in mine])}" if len(mine) < facts.size else ""
            yield finding(
                facts,
                self.name,
                [mode.position for mode in mine],
                f"{model} trains in evaluation mode{where} {when}: {why} of it do something else then",
                severity=severity,
                confidence=0.9 if turned else 0.4,
                component=model,
                phase="forward",
                first_step=first.first_step,
                evidence=(
                    Evidence("training steps in evaluation mode", float(first.steps), "count"),
                    Evidence("of the training steps since then", first.share, "share"),
                    Evidence("training steps in training mode before", float(first.before), "count"),
                ),
                next=(
                    "call `model.train()` after each evaluation, before the next training step",
                    "look for a function that calls `.eval()` and returns without undoing it",
                ),
            )


def _modes(facts: Facts, position: int) -> Iterator[_Mode]:
    pid = facts.ranks[position].pid
    rows = facts.rows(Forward, position, window=False)
    rows = rows[column(rows, Forward, "grad") > 0]
    trains = np.unique(facts.rows(Backward, position, window=False)["step"])
    rows = rows[np.isin(rows["step"], trains)]
    models = column(rows, Forward, "model")
    for id in np.unique(models).tolist():
        mine = rows[models == id]
        name = facts.tables.name(pid, id)
        steps = np.unique(mine["step"]).astype(np.int64)
        in_training = np.isin(steps, mine["step"][column(mine, Forward, "training") > 0])
        mode = _stretch(position, name, steps, ~in_training)
        if mode is not None and _changes(facts, position, name, steps[~in_training], len(np.unique(models))):
            yield mode


def _stretch(
    position: int, model: str, steps: NDArray[np.int64], evaluates: NDArray[np.bool_]
) -> _Mode | None:
    """Where the steps in evaluation mode begin; None where they are few."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], evaluates, [False])).astype(int)))
    runs = [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= FEWEST]
    if not runs:
        return None
    begin, count = runs[0][0], sum(b - a for a, b in runs)
    to_the_end = runs[-1][1] == len(steps)
    share = float(evaluates[begin:].mean())
    if count < SHARE * len(steps) and not to_the_end:
        return None
    return _Mode(position, model, int(steps[begin]), count, share, int((~evaluates[:begin]).sum()), to_the_end)


def _changes(facts: Facts, position: int, model: str, steps: NDArray[np.int64], models: int) -> bool:
    """Whether the model's parameters changed in these steps; where none of them was sampled: whether it is the only
    model that has gradients."""
    seen = False
    for (name, _), series in weights(facts).items():
        if name != model or position not in series.positions:
            continue
        at = np.isin(series.steps, steps)
        seen = seen or bool(at.any())
        if (series.of(position, "changed")[at] * series.of(position, "held")[at]).any():
            return True
    return not seen and models == 1


def _depending(facts: Facts, mode: _Mode) -> list[str]:
    """Classes of its layers that do something else in evaluation mode."""
    stock = inventory(facts, mode.position)
    modules = [m.kind for one in (stock.models if stock else ()) if one.name == mode.model for m in one.modules]
    return [kind for kind in modules if any(word in kind for word in DEPEND)]
