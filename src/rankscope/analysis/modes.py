"""In which mode each rank trains: whether its model was in training or in evaluation mode when backward followed."""

from __future__ import annotations

from collections import Counter as Counted

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.training import Backward, Forward

LAST = 3
"""Training passes from the end that must all be in the other mode: one may be a look at something."""


def odd_modes(facts: Facts) -> tuple[tuple[int, ...], str]:
    """(ranks whose last training passes are in another mode than their peers', their model); ((), "") where none are.

    The minority is odd; of equal halves the one in evaluation mode. Only ranks that train the same model are compared.
    """
    if facts.size < 2:
        return (), ""
    last = [facts.once(_last_modes, position) for position in range(facts.size)]
    for model in sorted(set().union(*last)):
        modes = {p: own[model] for p, own in enumerate(last) if model in own}
        counts = Counted(modes.values())
        if len(counts) < 2 or None in counts:
            continue
        odd = 0 if counts[0] <= counts[1] else 1
        return tuple(p for p, mode in modes.items() if mode == odd), model
    return (), ""


def _last_modes(facts: Facts, position: int) -> dict[str, int | None]:
    """Model -> 1 where its last training passes were all in training mode, 0 in evaluation mode, None mixed."""
    pid = facts.ranks[position].pid
    forwards, backwards = facts.tables.of(Forward), facts.tables.of(Backward)
    forwards = forwards[(forwards["process"] == pid) & (column(forwards, Forward, "grad") > 0)]
    starts = backwards["time_ns"][backwards["process"] == pid]
    # Of each backward the last forward with gradients before it.
    at = np.unique(np.searchsorted(forwards["time_ns"], starts) - 1)
    passes = forwards[at[at >= 0]]
    by_model: dict[str, list[int]] = {}
    for name, training in zip(passes["name"].tolist(), column(passes, Forward, "training").tolist(), strict=True):
        by_model.setdefault(facts.tables.name(pid, name), []).append(training)
    found: dict[str, int | None] = {}
    for model, modes in by_model.items():
        if len(modes) >= LAST:
            recent = set(modes[-LAST:])
            found[model] = recent.pop() if len(recent) == 1 else None
    return found
