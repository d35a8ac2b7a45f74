"""The loss by step, one curve for each line that calls backward: level, noise, spikes, and whether it should fall."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, parse_place
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import inventory
from rankscope.records.activations import EvaluationLoss
from rankscope.records.gradient_calls import ScalerStep
from rankscope.records.numerics import LossValue
from rankscope.records.training import Backward, Forward, Metric, OptimizerStep

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAD_TO_SIGMA = 1.4826
"""Of normal noise, its standard deviation in median absolute deviations."""
WIDEST = 25
"""Steps of the running median at most."""
PART_AT_END = 3
"""The level at the end is the median of the last 1/3 of the steps."""
ACTING = 0.5
"""Of the steps, the share with a call of the trained model without a backward from which on it makes its own data."""

ROLLED = 6
"""Forwards with gradients to a backward: a network with several inputs (siamese, triplet) is called two or three times
only."""
OFTEN = 0.5
"""Losses without gradients in more than this share of the steps belong to the training: a target, a teacher."""
NAMES = re.compile(r"(^|[^a-z])(val|valid|validation|eval|evaluation|test|dev)([^a-z]|$)")
"""Of metrics that a program logs."""


@dataclass(frozen=True, slots=False)
class Curve:
    """One loss over the run: of each step the mean over its micro-batches and the ranks."""

    site: str
    """`file:line:function` of backward."""
    steps: Ints
    values: Floats
    """[k] as the program scaled them, without a GradScaler's scale."""

    @property
    def place(self) -> Place | None:
        return parse_place(self.site) if self.site.count(":") >= 2 else None

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        return np.isfinite(self.values)

    @cached_property
    def first(self) -> float:
        """The loss before any update; NaN where it is not finite."""
        return float(self.values[0]) if len(self.values) and self.finite[0] else float("nan")

    @cached_property
    def noise(self) -> float:
        """Standard deviation of the loss from one step to the next, without its trend and its outliers."""
        values = self.values[self.finite]
        if len(values) < 3:
            return 0.0
        changes = np.diff(values)
        spread = float(np.median(np.abs(changes - np.median(changes))))
        return MAD_TO_SIGMA * spread / 2**0.5

    @cached_property
    def smooth(self) -> Floats:
        """[k] running median; NaN where the loss is not finite."""
        width = max(3, min(WIDEST, len(self.values) // 8)) | 1
        return running_median(self.values, width)

    @cached_property
    def end(self) -> float:
        """Median of the last third; infinite where most of it is not finite."""
        last = self.values[-max(1, len(self.values) // PART_AT_END) :]
        good = last[np.isfinite(last)]
        return float(np.median(good)) if len(good) * 2 > len(last) else float("inf")

    @cached_property
    def lowest(self) -> float:
        """The lowest level that it kept up for a while; NaN: none."""
        known = self.smooth[np.isfinite(self.smooth)]
        return float(known.min()) if len(known) else float("nan")

    def first_not_finite(self) -> int | None:
        """The first step at which it was infinite or NaN."""
        bad = np.flatnonzero(~self.finite)
        return int(self.steps[bad[0]]) if len(bad) else None

    def between(self, first: int, last: int) -> Floats:
        """Finite values of the steps from `first` to `last`."""
        found: Floats = self.values[(self.steps >= first) & (self.steps <= last) & self.finite]
        return found


def curves(facts: Facts) -> tuple[Curve, ...]:
    """The losses of the run, the one with most steps first."""
    return facts.once(_curves)


def not_made_to_fall(facts: Facts) -> str | None:
    """Why the loss of this run need not fall even in a healthy training; None where it should.

    What a run itself can tell: two players of a game have losses and optimizers of their own; a policy or value
    function that makes its own data is called without a backward between the steps; a loss below zero is no distance
    from what is wanted.
    """
    return facts.once(_not_made_to_fall)


def makes_its_own_data(facts: Facts) -> bool:
    """Whether a model that is trained also acts: it is called without a backward in most steps."""
    return any(facts.once(_acts, position) for position in range(facts.size))


def rolls_out(facts: Facts) -> bool:
    """Whether a backward usually goes through many forwards of a model: a policy that acted step by step."""
    return any(facts.once(_calls_a_backward, position) >= ROLLED for position in range(facts.size))


def _calls_a_backward(facts: Facts, position: int) -> float:
    forwards = facts.rows(Forward, position, window=False)
    grads = forwards[column(forwards, Forward, "grad") > 0]
    backwards = facts.rows(Backward, position, window=False)
    return len(grads) / len(backwards) if len(backwards) else 0.0


def running_median(values: Floats, width: int) -> Floats:
    """[k] median of the finite values around each one, `width` of them (odd); narrower at the ends."""
    if not len(values):
        return values
    half = width // 2
    padded = np.full(len(values) + 2 * half, np.nan)
    padded[half : half + len(values)] = np.where(np.isfinite(values), values, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    known = np.isfinite(windows).any(axis=1)
    found = np.full(len(values), np.nan)
    if known.any():
        found[known] = np.nanmedian(windows[known], axis=1)
    return found


def _curves(facts: Facts) -> tuple[Curve, ...]:
    by_site: dict[str, list[tuple[Ints, Floats]]] = {}
    for position in range(facts.size):
        rows = facts.rows(LossValue, position, window=False)
        values = column(rows, LossValue, "value") / _scales(facts, position, rows["step"])
        for name in np.unique(rows["name"]).tolist():
            mine = rows["name"] == name
            steps, index = np.unique(rows["step"][mine], return_inverse=True)
            with np.errstate(invalid="ignore"):
                mean = np.bincount(index, values[mine]) / np.bincount(index)
            site = facts.tables.name(facts.ranks[position].pid, name)
            by_site.setdefault(site, []).append((steps.astype(np.int64), mean))
    found = [_over_ranks(site, parts) for site, parts in by_site.items()]
    return tuple(sorted((c for c in found if len(c.steps)), key=lambda c: -len(c.steps)))


def _over_ranks(site: str, parts: list[tuple[Ints, Floats]]) -> Curve:
    common = parts[0][0]
    for steps, _ in parts[1:]:
        common = np.intersect1d(common, steps)
    with np.errstate(invalid="ignore"):
        mean = np.mean([values[np.isin(steps, common)] for steps, values in parts], axis=0)
    return Curve(site, common, mean)


def _scales(facts: Facts, position: int, steps: NDArray[np.int64]) -> Floats:
    """The GradScaler's scale in the loss of each step; 1 where there is none."""
    rows = facts.rows(ScalerStep, position, window=False)
    scale = column(rows, ScalerStep, "scale")
    good = np.isfinite(scale) & (scale > 0)
    if not good.any():
        return np.ones(len(steps))
    at, scale = rows["step"][good].astype(np.int64), scale[good]
    # A step that was skipped ends none: it is told with the number of the next one that does.
    index = np.clip(np.searchsorted(at, steps), 0, len(at) - 1)
    found: Floats = scale[index]
    return found


def _not_made_to_fall(facts: Facts) -> str | None:
    found = curves(facts)
    if not found:
        return "no loss is known"
    most = len(found[0].steps)
    regular = [c for c in found if len(c.steps) > most / 2]
    if len(regular) > 1:
        return "several losses have a backward of their own"
    if any(len(_optimizers(facts, p)) > 1 and _backwards(facts, p) > 1 for p in range(facts.size)):
        return "several optimizers take turns"
    values = regular[0].values[regular[0].finite]
    if len(values) and float(values.min()) < 0:
        return "the loss falls below zero"
    if makes_its_own_data(facts):
        return "the trained model is called without a backward in most steps: it may make its own data"
    return None


def _optimizers(facts: Facts, position: int) -> set[int]:
    rows = facts.rows(OptimizerStep, position, window=False)
    numbers, counts = np.unique(column(rows, OptimizerStep, "optimizer"), return_counts=True)
    return {int(n) for n, count in zip(numbers, counts, strict=True) if 2 * count > counts.max()}


def _backwards(facts: Facts, position: int) -> float:
    """Backward calls of a usual step."""
    steps, counts = np.unique(facts.rows(Backward, position, window=False)["step"], return_counts=True)
    return float(np.median(counts)) if len(steps) else 0.0


def _acts(facts: Facts, position: int) -> bool:
    """Whether a model that is trained is called more often than a backward follows, in most steps."""
    forwards = facts.rows(Forward, position, window=False)
    backwards = facts.rows(Backward, position, window=False)
    held = inventory(facts, position)
    trained = {m.name for m in held.models if any(p.group for p in m.parameters)} if held is not None else set()
    pid = facts.ranks[position].pid
    names = column(forwards, Forward, "model")
    mine = np.array([facts.tables.name(pid, int(n)) in trained for n in names], bool)
    # Of each backward the last forward before it is the one that it goes through.
    starts = np.sort(forwards["time_ns"])
    through = np.unique(np.searchsorted(starts, backwards["time_ns"]) - 1)
    order = np.argsort(forwards["time_ns"], kind="stable")
    followed = np.zeros(len(forwards), bool)
    followed[order[through[through >= 0]]] = True
    without_grad = mine & ~followed & (column(forwards, Forward, "grad") == 0)
    # Without a mode that says so, one sample at a time is what acting looks like.
    small = mine & ~followed & (column(forwards, Forward, "elements") * 2 < _usual(forwards, followed))
    alone = np.unique(forwards["step"][without_grad | small])
    return len(alone) > ACTING * max(1, len(np.unique(backwards["step"])))


def _usual(forwards: NDArray[np.void], followed: NDArray[np.bool_]) -> float:
    elements = column(forwards[followed], Forward, "elements")
    return float(np.median(elements)) if len(elements) else 0.0


def evaluations(facts: Facts) -> tuple[Curve, ...]:
    """Evaluation losses: of each line that computes one without gradients, and of each metric with such a name, the
    mean of those between two steps, over the ranks that have it."""
    return facts.once(_evaluations)


def _evaluations(facts: Facts) -> tuple[Curve, ...]:
    trained = {step for curve in curves(facts) for step in curve.steps.tolist()}
    found: dict[str, dict[int, list[float]]] = {}
    for position in range(facts.size):
        pid = facts.ranks[position].pid
        for kind in (EvaluationLoss, Metric):
            rows = facts.rows(kind, position, window=False)
            values = column(rows, kind, "value")
            for name, step, value in zip(rows["name"].tolist(), rows["step"].tolist(), values.tolist(), strict=True):
                text = facts.tables.name(pid, name)
                if kind is EvaluationLoss or ("loss" in text.lower() and NAMES.search(text.lower())):
                    found.setdefault(text, {}).setdefault(step, []).append(value)
    made = []
    for site, by_step in found.items():
        if len(by_step) > OFTEN * max(1, len(trained)):
            continue
        steps = sorted(by_step)
        means = np.array([sum(by_step[step]) / len(by_step[step]) for step in steps], np.float64)
        made.append(Curve(site, np.array(steps, np.int64), means))
    return tuple(sorted(made, key=lambda c: -len(c.steps)))
