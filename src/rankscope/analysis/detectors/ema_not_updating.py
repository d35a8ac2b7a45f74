"""Finds moving averages of weights that do not follow the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import weights
from rankscope.analysis.wiring import finding
from rankscope.base.finding import Evidence, Finding
from rankscope.records.loading import BatchWait
from rankscope.records.numerics import WeightStat
from rankscope.records.wiring import Average

FEWEST_LOOKS = 4
FEWEST_STEPS = 16
"""Between the first and the last look: an average may follow every few steps only."""
LATE = ("swa", "averagedmodel")
"""Averages over the end of a run: before it they stand still."""


@dataclass(frozen=True, slots=True)
class _Still:
    position: int
    name: str
    kind: str
    tensors: int
    first_step: int
    last_step: int


class EmaNotUpdating(Detector):
    """The exponential moving average of the weights stays as it was in the beginning.

    ## What it is
    The update finds no weights to follow: the names in its table do not match the model's (`_orig_mod.` of
    torch.compile, `module.` of DDP), it follows another copy of the model, or it is never called.

    ## What shows it
    A variable or a class that is called an average (ema, shadow, averaged) holds weights that are bit for bit the same
    at all sampled steps, while the trained weights change.

    ## What else looks like it
    Averages that begin late or follow rarely say so in a setting (`start`, `every`, `warmup`); averages of the end of a
    run (SWA) are left out, and so is what is called a teacher.

    ## What to do
    Let the update raise where a name has no partner; compare one weight of both after a step.
    """

    name = "ema-not-updating"
    needs = (Average, WeightStat)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        still = [one for position in range(facts.size) for one in _still(facts, position)]
        # The same average may be known by several variables.
        kinds = dict.fromkeys((one.kind, one.tensors) for one in still)
        for kind, tensors in kinds:
            mine = [one for one in still if (one.kind, one.tensors) == (kind, tensors)]
            first = mine[0]
            what = first.name if kind in ("dict", "list", "tuple") else f"{first.name} ({kind})"
            sure = _ends_epochs(facts, first)
            yield finding(
                facts,
                self.name,
                [one.position for one in mine],
                f"{what} does not follow the weights: it is the same from step {first.first_step} to"
                f" {first.last_step} while they change",
                # An average may follow once an epoch.
                severity="warning" if sure else "info",
                confidence=0.8 if sure else 0.5,
                component=what,
                phase="optimizer",
                first_step=first.first_step,
                evidence=(
                    Evidence("tensors of the average that were compared", float(tensors), "count"),
                    Evidence("steps without any change in them", float(first.last_step - first.first_step), "count"),
                ),
                next=(
                    "compare the names it keeps with those of the model that is trained (`_orig_mod.`, `module.`)",
                    "check that its update is called after each optimizer step",
                ),
            )


def _still(facts: Facts, position: int) -> Iterator[_Still]:
    pid = facts.ranks[position].pid
    rows = facts.rows(Average, position, window=False)
    ids = rows["name"].astype(np.int64) << 16 | column(rows, Average, "class_name")
    for id in np.unique(ids).tolist():
        mine = rows[ids == id]
        name, kind = facts.tables.name(pid, id >> 16), facts.tables.name(pid, id & 0xFFFF)
        first, last = int(mine["step"][0]), int(mine["step"][-1])
        wait = int(column(mine, Average, "waits").max())
        if any(word in f"{name} {kind}".lower() for word in LATE) or len(mine) < FEWEST_LOOKS:
            continue
        if last - first < max(FEWEST_STEPS, 2 * wait) or len(set(column(mine, Average, "fingerprint").tolist())) > 1:
            continue
        if _weights_change(facts, position, first):
            yield _Still(position, name, kind, int(column(mine, Average, "tensors")[0]), first, last)


def _ends_epochs(facts: Facts, still: _Still) -> bool:
    """Whether a pass over the data ended while it stood still; or there is no loader whose passes could be seen."""
    waits = facts.rows(BatchWait, still.position, window=False)
    inside = waits[(waits["step"] > still.first_step) & (waits["step"] <= still.last_step)]
    return not len(waits) or bool((column(inside, BatchWait, "ended") > 0).any())


def _weights_change(facts: Facts, position: int, since: int) -> bool:
    """Whether trained weights changed in the steps after one."""
    return any(
        (s.of(position, "changed")[s.steps > since] * s.of(position, "held")[s.steps > since]).any()
        for s in weights(facts).values()
        if position in s.positions
    )
