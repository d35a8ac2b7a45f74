"""Finds clipping of gradients that still have the loss scale in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_path import EXACT_HALF, clips, factors, has_scaler, path
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.gradient_calls import GradientClip

MOSTLY: Final = 0.5
"""Share of the clippings that act: a scaled norm is above any limit almost always."""
SCALED_LIMIT: Final = 0.05
"""Limit over scale from which on the limit was multiplied with the scale on purpose: usual limits lie between 0.1 and
10, twice as far."""
LARGE: Final = 16.0
"""A factor of the loss from which on it is a scale against underflow; smaller ones weigh losses."""
FEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class Early:
    """Clipping before unscaling, on one rank."""

    scale: float
    limit: float
    norm: float
    """That clipping saw; NaN: not known."""
    count: int
    of: int
    first: int
    place: Place | None


class ClipBeforeUnscale(Detector):
    """Gradients are clipped while the loss scale is still in them: hardly anything is left of them.

    ## What it is
    With a loss scale of 65536, gradients are 65536 times too large until they are unscaled. Clipping them to a norm of
    1 leaves a norm of 1/65536 after unscaling: the model learns next to nothing, and slower the higher the scale.

    ## What shows it
    The order of the calls of `GradScaler` and of clipping, with a norm above the limit and a limit that is far below
    the scale; of a scale that the program itself applies, the norm that the optimizer gets: the limit over the scale.

    ## What else looks like it
    A limit that is multiplied with the scale is right. Large weights of a loss are not undone later.

    ## What to do
    `scaler.unscale_(optimizer)` before `clip_grad_norm_`; divide by a scale of your own before clipping.
    """

    name = "clip-before-unscale"
    needs = (GradientClip,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not has_scaler(facts) and not any(factors(facts, p) for p in range(facts.size)):
            raise CannotExamine("no loss scale is known")
        look = _with_scaler if has_scaler(facts) else _by_hand
        found = {p: early for p in range(facts.size) if (early := look(facts, p)) is not None}
        if not found:
            return
        positions = tuple(found)
        one = found[positions[0]]
        left = one.limit / one.scale
        yield Finding(
            cause=self.name,
            severity="critical",
            confidence=0.95,
            title=f"gradients are clipped{wording.at(one.place)} before they are unscaled: of a norm of up to "
            f"{one.limit:g} at most {left:.2g} is left (scale {one.scale:g})",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="optimizer",
            component="gradient clipping",
            location=wording.location(one.place),
            first_step=one.first,
            last_step=facts.all_steps - 1,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("clippings of scaled gradients that act", float(one.count), "count", facts.numbers(positions)),
                Evidence("of so many clippings that were looked at", float(one.of), "count"),
                Evidence("loss scale", one.scale, "x"),
                Evidence("limit", one.limit, "L2 norm"),
                Evidence("norm that clipping saw", one.norm, "L2 norm"),
                Evidence("the same without the scale", one.norm / one.scale, "L2 norm"),
            ),
            next=("call scaler.unscale_(optimizer) before clipping", "or divide by your own scale before clipping"),
        )


def _with_scaler(facts: Facts, position: int) -> Early | None:
    rows = clips(facts, position)
    scaled = rows[column(rows, GradientClip, "scaled") == 1]
    if not len(scaled):
        return None
    limit, norm, scale = (column(scaled, GradientClip, f) for f in ("limit", "norm", "scale"))
    with np.errstate(invalid="ignore"):
        acts = (norm > limit) & np.isfinite(norm)
        wrong = acts & (limit < SCALED_LIMIT * scale)
    # On a device the norm is not known without waiting: the order alone says it then.
    unknown = np.isnan(norm)
    if unknown.all():
        wrong = unknown & ~(limit >= SCALED_LIMIT * scale)
    if wrong.sum() < max(1, MOSTLY * len(scaled)):
        return None
    at = np.flatnonzero(wrong)
    known = scale[at][np.isfinite(scale[at])]
    return Early(
        float(np.median(known)) if len(known) else float("nan"), float(np.median(limit[at])),
        float(np.median(norm[at])), int(wrong.sum()), len(scaled), int(scaled["step"][at[0]]),
        facts.place(position, int(column(scaled, GradientClip, "site")[at[0]])),
    )  # fmt: skip


def _by_hand(facts: Facts, position: int) -> Early | None:
    """A scale of the program's own: what the optimizer gets has a norm of the limit over the scale."""
    rows = clips(facts, position)
    gradients = path(facts, position)
    norms = dict(zip(gradients.steps.tolist(), gradients.norm.tolist(), strict=True))
    found, seen = [], 0
    for step, factor in sorted(factors(facts, position).items()):
        mine = rows[rows["step"] == step]
        if not len(mine) or step not in norms or not factor >= LARGE:
            continue
        seen += 1
        limit, norm = (float(column(mine, GradientClip, f)[-1]) for f in ("limit", "norm"))
        left = norms[step] * factor
        # Clipped to the limit, and the scale taken out of that.
        if norm > limit and abs(left / limit - 1) < EXACT_HALF:
            found.append((step, factor, limit, norm, int(column(mine, GradientClip, "site")[-1])))
    if len(found) < max(FEWEST, MOSTLY * seen):
        return None
    step, factor, limit, norm, site = found[0]
    return Early(factor, limit, norm, len(found), seen, step, facts.place(position, site))
