"""Finds loss scaling that leaves out most optimizer steps, and the layer that overflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_path import backward_place
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import Rows, column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.activations import ActivationStat
from rankscope.records.gradient_calls import NOT_FINITE, GradientSet, LossFactor, ScalerStep
from rankscope.records.not_finite import OPERATION, NotFinite
from rankscope.records.training import Backward, OptimizerStep

IN_A_ROW: Final = 20
"""Steps left out one after the other: by then a scale of 65536 is a sixteenth, and half precision overflows at 65504; a
scale that finds its level does so within a few halvings."""
SETTLED: Final = 20
"""Attempts after which a scale has found its level."""
MOSTLY: Final = 0.25
"""Share of the attempts after that which may be left out: a growing scale costs one in 2000, one in 4 at the fastest
growth that anyone sets."""
LARGEST_HALF: Final = 65504.0
"""Of half precision."""
ONE_LAYER: Final = 1000.0
"""Times that one layer makes its inputs larger at most: a sum over a million of them with weights of 1/1000."""
FEWEST: Final = 12
"""Attempts below which nothing is said of their share."""


@dataclass(frozen=True, slots=True)
class Collapse:
    """What became of the optimizer steps of one rank."""

    attempts: int
    skipped: int
    first: int
    scales: tuple[float, float]
    """At the start and at the end; NaN: not known."""
    place: Place | None


class LossScaleCollapse(Detector):
    """The loss scale falls and falls, and optimizer steps are left out: the model does not learn.

    ## What it is
    Gradients overflow in half precision at any scale, as something in the model overflows by itself: an activation
    above 65504, a division by nearly zero, a NaN in the data. The scaler halves the scale and leaves the step out,
    again and again.

    ## What shows it
    Most optimizer steps are left out after the scale should have found its level, or many in a row: by the calls of
    `GradScaler`, or, with a scaler of the program's own, backward calls without an optimizer step after which gradients
    are not finite. The layer nearest to the loss whose gradients are not finite, or the first one whose output is not.

    ## What else looks like it
    A scale that backs off a few times at the start is healthy, and so is a step left out now and then.

    ## What to do
    Compute the layer that is named in float32 or bfloat16; look at what goes into it.
    """

    name = "loss-scale-collapse"
    needs = (Backward,)
    any_length = True
    inference = True  # where every step is left out, no optimizer step is ever seen

    def examine(self, facts: Facts) -> Iterator[Finding]:
        bad = facts.tables.of(GradientSet)
        if not len(facts.tables.of(ScalerStep)) and not len(bad[column(bad, GradientSet, "what") == NOT_FINITE]):
            raise CannotExamine("no GradScaler was used, and no step was left out by hand")
        found = {p: one for p in range(facts.size) if (one := _collapse(facts, p)) is not None}
        if not found:
            return
        positions = tuple(found)
        one = found[positions[0]]
        layer, how = _layer(facts, positions)
        share = one.skipped / one.attempts
        start, end = one.scales
        scale = f", the scale fell from {start:g} to {end:g}" if np.isfinite(start) and end < start else ""
        yield Finding(
            cause=self.name,
            severity="critical",
            confidence=0.95 if layer else 0.85,
            title=f"{one.skipped} of {one.attempts} optimizer steps are left out{scale}: "
            + (f"{layer} overflows ({how})" if layer else "gradients are not finite at any scale"),
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="backward",
            component=layer or "loss scale",
            location=wording.location(one.place or backward_place(facts, positions[0])),
            first_step=one.first,
            last_step=None,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("optimizer steps that were left out", float(one.skipped), "count", facts.numbers(positions)),
                Evidence("of so many attempts", float(one.attempts), "count"),
                Evidence("share", share, "share"),
                *((Evidence("loss scale at the start", start, "x"), Evidence("loss scale at the end", end, "x"))
                  if np.isfinite(start) else ()),
            ),
            next=(
                f"compute {layer or 'what overflows'} in float32 or bfloat16",
                "look at the first batch that overflows, and at the size of the activations before it",
            ),
        )  # fmt: skip


def _collapse(facts: Facts, position: int) -> Collapse | None:
    rows = facts.rows(ScalerStep, position, window=False)
    if len(rows):
        skipped = column(rows, ScalerStep, "skipped").astype(bool)
        if not _collapsed(skipped):
            return None
        scales = column(rows, ScalerStep, "scale")
        return Collapse(
            len(rows), int(skipped.sum()), int(rows["step"][int(np.argmax(skipped))]),
            (float(scales[0]), float(scales[-1])),
            facts.place(position, int(column(rows, ScalerStep, "site")[-1])),
        )  # fmt: skip
    return _by_hand(facts, position)


def _collapsed(skipped: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
    runs = np.diff(np.flatnonzero(np.concatenate(([True], ~skipped, [True])))) - 1
    if runs.max() >= IN_A_ROW:
        return True
    later = skipped[SETTLED:] if len(skipped) >= SETTLED + FEWEST else skipped
    # The start alone may be a scale on its way to its level.
    share = MOSTLY if len(skipped) >= SETTLED + FEWEST else 1.0
    return len(later) >= FEWEST and bool(later.mean() >= share)


def _by_hand(facts: Facts, position: int) -> Collapse | None:
    """A scaler of the program's own: backward after backward without an optimizer step, with bad gradients."""
    bad = facts.rows(GradientSet, position, window=False)
    bad = bad[column(bad, GradientSet, "what") == NOT_FINITE]
    backwards = facts.rows(Backward, position, window=False)
    if not len(bad) or not len(backwards):
        return None
    ends = np.sort(facts.rows(OptimizerStep, position, window=False)["time_ns"])
    window = np.searchsorted(ends, backwards["time_ns"])
    counts = np.bincount(window, minlength=len(ends) + 1)
    finished = counts[: len(ends)]
    usual = int(finished[finished > 0].min()) if (finished > 0).any() else 1
    skipped = np.concatenate([[True] * max(0, int(n) // usual - (i < len(ends))) + [False] * (i < len(ends))
                              for i, n in enumerate(counts)]).astype(bool)  # fmt: skip
    if not len(skipped) or not _collapsed(skipped):
        return None
    # By the program's own numbers: what the loss was multiplied with.
    scales = column(facts.rows(LossFactor, position, window=False), LossFactor, "factor")
    both = (float(scales[0]), float(scales[-1])) if len(scales) else (float("nan"), float("nan"))
    return Collapse(
        len(skipped), int(skipped.sum()), int(bad["step"][0]), both, facts.place(position, int(backwards["name"][-1]))
    )


def _layer(facts: Facts, positions: tuple[int, ...]) -> tuple[str, str]:
    """The layer that overflows, and what shows it; "" where nothing does."""
    for position in positions:
        pid = facts.ranks[position].pid
        lost = facts.rows(NotFinite, position, window=False)
        lost = lost[(column(lost, NotFinite, "origin") == OPERATION) & (column(lost, NotFinite, "module") > 0)]
        if len(lost):
            path = facts.tables.name(pid, int(column(lost, NotFinite, "module")[0]))
            return path.rpartition(".")[0] or path, f"{facts.tables.name(pid, int(lost['name'][0]))} gives infinity"
        outputs = facts.rows(ActivationStat, position, window=False)
        broken: Rows = outputs[column(outputs, ActivationStat, "finite") == 0]
        if len(broken):
            return _from_outputs(facts, pid, outputs, broken)
        bad = facts.rows(GradientSet, position, window=False)
        bad = bad[column(bad, GradientSet, "what") == NOT_FINITE]
        inner = bad[column(bad, GradientSet, "last") == 0]
        if len(inner):
            path = facts.tables.name(pid, int(inner["name"][-1])).split()[0]
            return path.rpartition(".")[0] or path, "the gradients from there on are not finite"
    return "", ""


def _from_outputs(facts: Facts, pid: int, outputs: Rows, broken: Rows) -> tuple[str, str]:
    """The first module whose output is not finite, or the one before it, where what that gave is so small that no layer
    makes it overflow: then it happens in code between the two."""
    name = facts.tables.name(pid, int(broken["name"][0]))
    before = outputs[(outputs["step"] == broken["step"][0]) & (outputs["time_ns"] < broken["time_ns"][0])]
    if not len(before):
        return name, "its output is not finite"
    size = max(abs(float(column(before, ActivationStat, end)[-1])) for end in ("least", "most"))
    if size * ONE_LAYER >= LARGEST_HALF:
        return name, "its output is not finite"
    earlier = facts.tables.name(pid, int(before["name"][-1]))
    return earlier, f"between its output and that of {name}"
