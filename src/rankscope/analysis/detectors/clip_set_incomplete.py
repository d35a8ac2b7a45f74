"""Finds clipping that leaves out some gradients, or that each rank does by a norm of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot
from typing import Final

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_path import EXACT, Path, clips, path
from rankscope.analysis.stacks import Place
from rankscope.analysis.synchronisation import common_ratio, unsynchronised
from rankscope.analysis.tables import Rows, column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.gradient_calls import OUTSIDE_CLIP, GradientClip, GradientSet
from rankscope.records.numerics import GradientStat

SHOWN: Final = 3
FEWEST: Final = 2
"""Sampled steps that must show it."""
MATERIAL_NORM: Final = 0.1
"""Of the norm over all gradients, what is left out must have so much: less changes the norm by half a percent."""
CHANGES: Final = 1e-3
"""Relative change of what gradients are multiplied with, over the sampled steps, by which it follows a norm."""
FEW_OUTSIDE: Final = 0.5
"""Share of the gradients that are left out from which on clipping was meant for a part of the model."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What clipping leaves out on one sampled step."""

    step: int
    names: tuple[str, ...]
    count: int
    of: int
    norm: float
    covered: float
    """Norm of what was clipped, before."""
    limit: float
    place: Place | None

    @property
    def whole(self) -> float:
        return hypot(self.norm, self.covered)


class ClipSetIncomplete(Detector):
    """Gradient clipping acts on a part of the gradients, or by another norm on each rank.

    ## What it is
    The norm is taken over a list of parameters that lacks some: these go unclipped, and the norm that is compared with
    the limit is too small. Or ranks that hold the same parameters scale them by different coefficients, as each takes
    the norm over what it holds, and the replicas part.

    ## What shows it
    Parameters with a gradient that the optimizer steps and no clipping of that step was given, and a norm over all of
    them above the limit; some gradients scaled by one number and others left as they were; equal gradients scaled by
    different numbers on different ranks.

    ## What else looks like it
    Models with an optimizer and a clipping each; clipping layer by layer covers all in several calls. A part left out
    whose norm does not matter is a remark.

    ## What to do
    Clip `model.parameters()`, or what the optimizer holds. With split parameters, add the squares of all parts of the
    norm over the ranks, counting replicas once, and use that norm on every rank.
    """

    name = "clip-set-incomplete"
    needs = (GradientStat,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        by_rank = self._by_rank(facts)
        if by_rank is not None:
            yield by_rank
            return
        found = self._left_out(facts) or self._scaled_in_part(facts)
        if found is not None:
            yield found

    def _left_out(self, facts: Facts) -> Finding | None:
        """By the calls of torch's functions."""
        found = _outside(facts, 0)
        if not found:
            return None
        acts = [o for o in found if o.whole > o.limit and o.norm >= MATERIAL_NORM * o.whole]
        serious = len(acts) >= min(FEWEST, len(found))
        worst = max(acts or found, key=lambda o: o.norm / max(o.limit, 1e-30))
        shown = ", ".join(worst.names[:SHOWN]) + (
            f" and {worst.count - SHOWN} more" if worst.count > SHOWN else ""
        )  # fmt: skip
        title = f"clipping leaves out {worst.count} of {worst.of} gradients{wording.at(worst.place)}: {shown}"
        title += (
            f"; the norm over all is {worst.whole:.3g}, it sees {worst.covered:.3g}" if serious
            else "; their norm has not mattered so far"
        )  # fmt: skip
        what = What("warning" if serious else "info", 0.8 if serious else 0.5, ", ".join(worst.names[:SHOWN]),
                    worst.place, (acts or found)[0].step)  # fmt: skip
        return _finding(
            facts, title, what,
            (
                Evidence("gradients that are left out", float(worst.count), "count"),
                Evidence("gradients that the optimizer uses", float(worst.of), "count"),
                Evidence(f"norm of what is left out, step {worst.step}", worst.norm, "L2 norm"),
                Evidence(f"norm that clipping saw, step {worst.step}", worst.covered, "L2 norm"),
                Evidence("limit", worst.limit, "L2 norm"),
            ),
        )  # fmt: skip

    def _scaled_in_part(self, facts: Facts) -> Finding | None:
        """By the gradients themselves: clipping by hand."""
        gradients = path(facts, 0)
        parts = [(k, _clipped_part(gradients, k)) for k in range(len(gradients.steps))]
        steps = [(k, scaled) for k, scaled in parts if scaled is not None]
        by = [float(np.median(gradients.ratio[scaled, k])) for k, scaled in steps]
        # A number that never changes is a factor that somebody chose, not a clipping.
        if len(steps) < FEWEST or max(by) / min(by) - 1 < CHANGES:
            return None
        always = np.logical_and.reduce([~scaled for _, scaled in steps])
        outside = [key[1] for key, left in zip(gradients.keys, always.tolist(), strict=True) if left]
        if not outside or len(outside) > FEW_OUTSIDE * len(gradients.keys):
            return None
        k, scaled = steps[0]
        coefficient = float(np.nanmedian(gradients.ratio[scaled, k]))
        shown = ", ".join(outside[:SHOWN]) + (f" and {len(outside) - SHOWN} more" if len(outside) > SHOWN else "")
        return _finding(
            facts, f"clipping scales {int(scaled.sum())} of {len(gradients.keys)} gradients and leaves out {shown}",
            What("warning", 0.75, ", ".join(outside[:SHOWN]), None, int(gradients.steps[k])),
            (
                Evidence("sampled steps on which some gradients are scaled, others not", float(len(steps)), "count"),
                Evidence(f"what the others are multiplied with, step {int(gradients.steps[k])}", coefficient, "x"),
            ),
        )  # fmt: skip

    def _by_rank(self, facts: Facts) -> Finding | None:
        found = {step: ranks for step, ranks in common_ratio(facts).items() if ranks}
        if not found or any(one.first < min(found) for one in unsynchronised(facts)):
            return None
        first = min(found)
        ratios = {p: [by[p] for by in found.values() if p in by] for p in {q for by in found.values() for q in by}}
        position, worst = max(ratios.items(), key=lambda item: max(abs(np.log(item[1]))))
        odd = tuple(sorted(ratios)) if facts.size > 2 and len(ratios) < facts.size / 2 else tuple(range(facts.size))
        ratio = float(max(worst, key=lambda r: abs(np.log(r))))
        rows = clips(facts, position)
        place = facts.place(position, int(column(rows, GradientClip, "site")[-1])) if len(rows) else None
        norms = _norms(facts, first)
        return _finding(
            facts,
            f"ranks scale equal gradients by different coefficients{wording.at(place)}: those of rank "
            f"{facts.ranks[position].rank} are {ratio:.3g} times those of rank {facts.ranks[0].rank}; replicas part",
            What("critical", 0.9, "clipping coefficient", place, first, odd),
            (
                Evidence("sampled steps on which the coefficients differ", float(len(found)), "count"),
                Evidence("largest ratio of a coefficient to the first rank's", ratio, "x", facts.numbers((position,))),
                *(Evidence(f"norm that clipping saw, step {first}", n, "L2 norm", facts.numbers((p,)))
                  for p, n in norms.items()),
            ),
        )  # fmt: skip


def _outside(facts: Facts, position: int) -> list[Outside]:
    rows = facts.rows(GradientSet, position, window=False)
    rows = rows[(column(rows, GradientSet, "what") == OUTSIDE_CLIP) & (column(rows, GradientSet, "count") > 0)]
    calls = clips(facts, position)
    pid = facts.ranks[position].pid
    found = []
    for row in (rows[i : i + 1] for i in range(len(rows))):
        step = int(row["step"][0])
        mine = calls[(calls["step"] == step) & (calls["time_ns"] <= row["time_ns"][0])]
        if not len(mine):
            continue
        norm = _before(mine)
        covered = norm if np.isfinite(norm) else float(column(row, GradientSet, "rest")[0])
        found.append(Outside(
            step, tuple(facts.tables.name(pid, int(row["name"][0])).split()),
            int(column(row, GradientSet, "count")[0]), int(column(row, GradientSet, "of")[0]),
            float(column(row, GradientSet, "norm")[0]), covered, float(column(mine, GradientClip, "limit").max()),
            facts.place(position, int(column(mine, GradientClip, "site")[-1])),
        ))  # fmt: skip
    return found


def _before(calls: Rows) -> float:
    """Norm of what the clippings of a step were given, before they scaled it."""
    return hypot(*column(calls, GradientClip, "norm").tolist())


def _norms(facts: Facts, step: int) -> dict[int, float]:
    found = {}
    for position in range(facts.size):
        rows = clips(facts, position)
        rows = rows[rows["step"] == step]
        if len(rows) and np.isfinite(_before(rows)):
            found[position] = _before(rows)
    return found


def _clipped_part(gradients: Path, k: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """[p] gradients that were scaled by one number below one on a step, while others kept their bits; None where that
    is not what happened."""
    ratio, same = gradients.ratio[:, k], gradients.untouched[:, k]
    moved = ~same & np.isfinite(ratio)
    values = ratio[moved]
    if len(values) < 2 or not same.any() or values.max() / values.min() - 1 > EXACT or values.max() >= 1 - EXACT:
        return None
    return np.asarray(moved)


@dataclass(frozen=True, slots=True)
class What:
    """How a finding of this cause is filed."""

    severity: str
    confidence: float
    component: str
    place: Place | None
    first: int
    positions: tuple[int, ...] = ()
    """The ranks concerned; empty: all."""


def _finding(facts: Facts, title: str, what: What, evidence: tuple[Evidence, ...]) -> Finding:
    positions = what.positions or tuple(range(facts.size))
    return Finding(
        cause=ClipSetIncomplete.name,
        severity=what.severity,  # type: ignore[arg-type]  # one of the three words
        confidence=what.confidence,
        title=title,
        ranks=facts.numbers(positions),
        all_ranks=len(positions) == facts.size,
        phase="optimizer",
        component=what.component,
        location=wording.location(what.place),
        first_step=what.first,
        last_step=facts.all_steps - 1,
        cost=Cost(None, None, None),
        evidence=evidence,
        next=(
            "clip all parameters that the optimizer holds, in one call",
            "with split parameters: one norm over all ranks, each replica counted once",
        ),
    )
