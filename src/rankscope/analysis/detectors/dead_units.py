"""Finds layers many of whose units are zero whatever goes in, and get no gradient that could change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.layers import Layer, layers
from rankscope.analysis.losses import curves
from rankscope.analysis.tables import Rows, column
from rankscope.analysis.tensors import Key
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.activations import ActivationStat, UnitStat
from rankscope.records.numerics import GradientStat

MANY = 0.25
"""Share of a layer's units that one event has killed. Without an event more must be dead: in a healthy network some are
off from the start, as their weights happen to lie, and in a small one that trains fast half may die on the way."""
GROWN = 0.15
"""By how much that share has grown since the start, where units have died and were not off from the beginning."""
MOST = 0.6
"""Share of a layer's units that are off from the start and stay so where that is no accident: in deep networks as
torch initialises them it is up to a half in the last layers, and becomes less."""
FEWEST_UNITS = 8
LOOKS = 2
"""Looks in a row, each at another batch, over which a unit must be off."""
APART = 8
"""Steps between the first and the last look of a layer at least: in the first steps much is still on its way."""
SETTLED = 8
"""Steps after which a training has taken its first large steps."""
LESS = 0.05
"""By how much the share must have gone down for units to be coming back."""
AGREES = 0.9
"""Of the share of dead units, the share of zeros that the gradient of the weights before them has at least: it is that
of all batches and calls of a step, of which one is looked at."""
BUSY = 0.1
"""Part of the inputs that the other units answer to. Below it the code is sparse on purpose (a sparse autoencoder, the
largest k of many), and a unit that was off for some batches only waits for its input."""
LEARNED = 0.3
"""Of the first loss: who has come so far did not need the units that died on the way."""
MOST_OF_ALL = 0.9
"""Share of dead units that is told whatever the loss does."""
AT_ONCE = 0.5
"""Part of the loss of units that falls between two looks where one event killed them."""
EVENT = 3.0
"""Times the level before it that the loss reaches in such an event."""
ALONE = 0.95
"""Share of dead units from which on what the few others do says nothing of the layer."""
CUTS = ("ReLU", "ReLU6", "Threshold", "Hardshrink", "Softshrink", "GELU", "SquaredReLU", "ReLUSquared")
"""Activations that give exactly zero."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A layer at its last look."""

    path: str
    """Of the module whose output it is."""
    units: int
    share: float
    before: float
    """The share in its first looks."""
    gradient_zeros: float
    activity: float
    """Part of the inputs for which the other units are on."""
    at_once: bool
    """Whether most of them died between two looks, long after the start, and the loss leapt between these."""
    since: int
    """First step with more than half of what was lost."""
    last: int


class DeadUnits(Detector):
    """Many units of a layer are zero for every input, and learn no more.

    ## What it is
    A ReLU whose input is below zero for all data gives zero and passes no gradient: its weights stay as they are. One
    step that is too large, or a large negative bias, does it to many at once.

    ## What shows it
    Units that were zero in every row of a batch, for two looks in a row up to the end; more of them than at the
    start, or most of the layer; and as many zeros in the gradient of the weights before them.

    ## What else looks like it
    In a healthy ReLU layer half of the outputs, or more, are zero, but not of the same units for all inputs. Sparse
    codes (sparse autoencoders, the largest k) have units that wait long for their input. Dropout takes other units
    each time. A few units are off from the start.

    ## What to do
    A lower learning rate, or warm-up; clip gradients; LeakyReLU or GELU; normalise inputs and targets; initialise the
    dead units again.
    """

    name = "dead-units"
    needs = (UnitStat, GradientStat)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        looked = [facts.once(_looked_at, position) for position in range(facts.size)]
        if not any(looked):
            raise CannotExamine(f"no layer of at least {FEWEST_UNITS} units was looked at {LOOKS} times in training")
        # A unit of a replica is dead where it is so on all ranks: each sees other inputs.
        found: dict[Key, Dead] = {}
        for own in looked:
            for key, dead in own.items():
                known = found.get(key)
                if known is None or dead.share < known.share:
                    found[key] = dead
        bad = sorted((d for d in found.values() if _is_bad(d)), key=lambda d: -d.share * d.units)
        if not bad:
            return
        worst = bad[0]
        learned = _learned(facts) and worst.share < MOST_OF_ALL and not worst.at_once
        others = f" and {len(bad) - 1} more layers" if len(bad) > 1 else ""
        yield Finding(
            cause=self.name,
            severity="info" if learned else "warning",
            confidence=0.9 if worst.share - worst.before >= GROWN else 0.75,
            title=f"{wording.percent(worst.share)} of the {worst.units} units of {worst.path}{others} are zero for "
            f"every input and get no gradient",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="forward",
            component=worst.path,
            location=None,
            first_step=min(d.since for d in bad),
            last_step=max(d.last for d in bad),
            cost=Cost(None, None, None),
            evidence=(
                *(Evidence(f"{d.path}: units that were zero throughout the last {LOOKS} looks", d.share, "share")
                  for d in bad[:4]),
                Evidence(f"{worst.path}: the same at the start", worst.before, "share"),
                Evidence(f"{worst.path}: zeros in the gradient of its weights", worst.gradient_zeros, "share"),
            ),
            next=(
                "lower the learning rate, warm it up, or clip gradients: large steps push units below zero",
                "use LeakyReLU or GELU, or normalise before the activation",
                "check the scale of inputs and targets",
            ),
        )  # fmt: skip


def _is_bad(dead: Dead) -> bool:
    sparse = dead.activity < BUSY and dead.share < ALONE
    if sparse or dead.gradient_zeros < AGREES * dead.share:
        return False
    grown = dead.share - dead.before
    return (dead.share >= MOST and grown >= -LESS) or (dead.share >= MANY and grown >= GROWN and dead.at_once)


def _learned(facts: Facts) -> bool:
    """Whether the loss has come down far."""
    found = curves(facts)
    return bool(found) and found[0].end < LEARNED * found[0].first


def _at_once(facts: Facts, shares: NDArray[np.float64], steps: NDArray[np.int64], grown: float) -> bool:
    jumps, found = np.diff(shares), curves(facts)
    if grown < GROWN or not len(jumps) or not found:
        return False
    for at in np.flatnonzero(jumps >= AT_ONCE * grown).tolist():
        before = found[0].between(int(steps[at]) - SETTLED, int(steps[at]))
        since = found[0].between(int(steps[at]) + 1, int(steps[at + 1]))
        if steps[at] >= SETTLED and len(before) and len(since) and since.max() > EVENT * np.median(before):
            return True
    return False


def _looked_at(facts: Facts, position: int) -> dict[Key, Dead]:
    """(model, path) -> layer, of a rank's layers whose units can be judged."""
    pid = facts.ranks[position].pid
    units = facts.rows(UnitStat, position, window=False)
    units = units[column(units, UnitStat, "training") > 0]
    outputs = facts.rows(ActivationStat, position, window=False)
    outputs = outputs[column(outputs, ActivationStat, "training") > 0]
    known = {(layer.model, layer.path): layer for layer in layers(facts)}
    found: dict[Key, Dead] = {}
    followed: set[Key] = set()
    for model, name in sorted({(int(c) & 0xFFFF, int(n)) for c, n in zip(units["c"], units["name"], strict=True)}):
        mine = units[(units["name"] == name) & (column(units, UnitStat, "model") == model)]
        output = outputs[(outputs["name"] == name) & (column(outputs, ActivationStat, "model") == model)]
        mine = mine[column(mine, UnitStat, "units") == column(mine, UnitStat, "units")[-1]]
        if column(mine, UnitStat, "looks")[-1] < LOOKS or column(mine, UnitStat, "units")[-1] < FEWEST_UNITS:
            continue
        if mine["step"][-1] - mine["step"][0] < APART:
            continue
        kind = facts.tables.name(pid, int(column(output, ActivationStat, "class_name")[-1])) if len(output) else ""
        model_name, path = facts.tables.name(pid, model), facts.tables.name(pid, name)
        before = path if kind not in CUTS else _feeding(facts, position, model_name, output, outputs, known)
        layer = known.get((model_name, f"{before}.weight")) if before is not None else None
        if layer is None or (kind not in CUTS and layer.path != f"{path}.weight"):
            continue
        field = "lasting_dead" if kind in CUTS else "lasting_off"
        found[model_name, path] = _dead(facts, path, mine, output, layer, field)
        if kind in CUTS and before is not None:
            followed.add((model_name, before))
    # Of a layer and the activation after it, the latter tells more.
    return {key: dead for key, dead in found.items() if key not in followed}


def _dead(facts: Facts, path: str, mine: Rows, output: Rows, layer: Layer, field: str) -> Dead:  # noqa: PLR0917
    shares = column(mine, UnitStat, field) / 65535
    full = column(mine, UnitStat, "looks") >= LOOKS
    shares = shares[full]
    share, before = float(shares[-1]), float(shares[0])
    # Of the same inputs: what the layer's other units give. Outputs of a layer without its activation say nothing.
    zeros = float(column(output, ActivationStat, "zeros")[-1]) / 255 if field == "lasting_dead" else 0.0
    activity = min(1.0, (1 - zeros) / (1 - share)) if share < 1 else 1.0
    at = np.flatnonzero(np.isfinite(layer.gradient_zeros))
    single = column(mine, UnitStat, "dead" if field == "lasting_dead" else "off") / column(mine, UnitStat, "units")
    below = np.flatnonzero(single <= (before + share) / 2 if share - before >= GROWN else single < 0)
    first = int(mine["step"][min(len(mine) - 1, below[-1] + 1 if len(below) else 0)])
    return Dead(
        path=path,
        units=int(column(mine, UnitStat, "units")[-1]),
        share=share,
        before=before,
        gradient_zeros=float(layer.gradient_zeros[at[-1]]) if len(at) else 0.0,
        activity=activity,
        at_once=_at_once(facts, single, mine["step"].astype(np.int64), share - before),
        since=first,
        last=int(mine["step"][-1]),
    )


def _feeding(  # noqa: PLR0917
    facts: Facts, position: int, model: str, output: Rows, outputs: Rows, known: dict[Key, Layer]
) -> str | None:
    """The module with weights that was called last before an activation, in the same step."""
    if not len(output):
        return None
    pid = facts.ranks[position].pid
    before = outputs[(outputs["step"] == output["step"][-1]) & (outputs["commit"] < output["commit"][-1])]
    for name in before["name"][np.argsort(before["commit"])][::-1].tolist():
        path = facts.tables.name(pid, name)
        if (model, f"{path}.weight") in known:
            return path
    return None
