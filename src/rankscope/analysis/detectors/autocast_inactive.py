"""Finds layers that compute in full precision although autocast is on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import parse_class_place
from rankscope.analysis.tables import Rows, column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.training import Module

MOST = 0.5
"""Share of the weights used inside autocast that are multiplied in full precision; a layer or two is a choice."""


class AutocastInactive(Detector):
    """Matrix products inside an autocast region still run in full precision.

    ## What it is
    A layer opts out of autocast (`autocast(enabled=False)`, `custom_fwd`, a kernel of its own), or its weights are
    used through an operator that autocast does not know.

    ## What shows it
    On the deeply recorded steps, modules with weight matrices get a floating input inside autocast and give out
    float32.

    ## What else looks like it
    Single layers that are kept in full precision on purpose (a loss, a norm, a last projection).

    ## What to do
    Use the standard layers, or cast inside the custom one; check dtypes of its outputs once.
    """

    name = "autocast-inactive"
    needs = (Module,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        rows = [facts.rows(Module, p, window=False) for p in range(facts.size)]
        inside = [r[(column(r, Module, "autocast") == 1) & (column(r, Module, "numel") > 0)] for r in rows]
        if not any(len(r) for r in inside):
            raise CannotExamine("no module was called inside an autocast region")
        shares = np.array([_share(r) for r in inside])
        positions = tuple(int(p) for p in np.flatnonzero(shares >= MOST))
        if not positions:
            return
        p = positions[0]
        full = inside[p][column(inside[p], Module, "full_precision") == 1]
        paths = sorted({facts.tables.name(facts.ranks[p].pid, int(n)) for n in full["name"]})
        classes, counts = np.unique(column(full, Module, "class_name"), return_counts=True)
        kind, place = parse_class_place(facts.tables.name(facts.ranks[p].pid, int(classes[np.argmax(counts)])))
        some = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{kind} runs in full precision inside autocast ({some})",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=kind,
            location=wording.location(place),
            first_step=int(full["step"].min()),
            last_step=None,  # looked at on a few steps only
            cost=Cost(None, None, None),
            evidence=(
                Evidence(
                    "of the weights used inside autocast, multiplied in float32",
                    float(shares[p]),
                    "share",
                    facts.numbers(positions),
                ),
                Evidence("modules that do so", float(len(paths)), "count"),
            ),
            next=(
                f"let {kind} follow autocast: no autocast(enabled=False) and no .float() around its product",
                "check the dtype of its output inside `with torch.autocast(...)`",
            ),
        )


def _share(rows: Rows) -> float:
    """Of the weights of these module calls, the share that was multiplied in full precision."""
    numel = column(rows, Module, "numel").astype(float)
    full = column(rows, Module, "full_precision") == 1
    return float(numel[full].sum() / numel.sum()) if len(rows) and numel.sum() else 0.0
