"""Finds optimizers whose gradients nobody clears."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.analysis.tensors import Key, gradients, parameters
from rankscope.analysis.wiring import finding
from rankscope.base.finding import Evidence, Finding
from rankscope.records.wiring import GradientReuse

FEWEST = 2
"""Steps that must show it: a single one may be an attempt that was taken back."""
MOSTLY = 0.8
"""Of the watched steps from the first one that shows it: who clears every few steps does so on purpose, or at least
cannot be told from one who does; forgotten is forgotten at each step."""


@dataclass(frozen=True, slots=True)
class _Reuse:
    position: int
    optimizer: int
    name: str
    place: Place | None
    first_step: int
    reused: int
    watched: int
    unread: bool


class MissingZeroGrad(Detector):
    """Backward adds to gradients that the optimizer has already used.

    ## What it is
    `zero_grad()` is not called, or on another object than the one that trains: each step then goes along the sum of
    all gradients since the start, or since the last clearing.

    ## What shows it
    After a step of the optimizer its gradients are still there, bit for bit and not zero, when the next backward
    begins, and that backward adds to them; at (nearly) every step that was watched.

    ## What else looks like it
    Accumulation adds to gradients that the optimizer has not used yet; a GAN's generator step fills gradients of the
    discriminator, which are cleared before its own backward; a closure clears inside `step`; a program that writes
    `p.grad` itself replaces what was there. All of them are told apart.

    ## What to do
    `optimizer.zero_grad()` once for each step, before the first backward or right after the step.
    """

    name = "missing-zero-grad"
    needs = (GradientReuse,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        found = [one for position in range(facts.size) for one in _reuses(facts, position)]
        for number in sorted({one.optimizer for one in found}):
            mine = [one for one in found if one.optimizer == number]
            first = mine[0]
            evidence = [
                Evidence("watched steps whose backward added to used gradients", first.reused / first.watched, "share")
            ]
            growth = _growth(facts, first)
            if growth is not None:
                evidence.append(Evidence("gradient norm at the last sampled step, by that of the first", growth, "x"))
            yield finding(
                facts,
                self.name,
                [one.position for one in mine],
                f"the gradients of {first.name} are never cleared: each step uses the sum of all before it",
                # What lies on a device was not read: it might be zeros.
                severity="warning" if first.unread else "critical",
                confidence=0.75 if first.unread else 0.95,
                component=f"{first.name}: zero_grad missing",
                place=first.place,
                phase="backward",
                first_step=first.first_step,
                evidence=evidence,
                next=(
                    "call `optimizer.zero_grad()` before the first backward of each step",
                    "check that it is called on the optimizer, or the model, that is trained",
                ),
            )


def _reuses(facts: Facts, position: int) -> Iterator[_Reuse]:
    rows = facts.rows(GradientReuse, position, window=False)
    pid = facts.ranks[position].pid
    numbers = column(rows, GradientReuse, "optimizer")
    for number in np.unique(numbers).tolist():
        mine = rows[numbers == number]
        reused = column(mine, GradientReuse, "reused") > 0
        if not reused.any():
            continue
        first = int(np.argmax(reused))
        tail = reused[first:]
        if tail.sum() < FEWEST or tail.mean() < MOSTLY:
            continue
        row = mine[first : first + 1]
        yield _Reuse(
            position,
            number,
            facts.tables.name(pid, int(row["name"][0])),
            facts.place(position, int(column(row, GradientReuse, "site")[0])),
            int(row["step"][0]),
            int(tail.sum()),
            len(tail),
            bool(column(row, GradientReuse, "unread")[0]),
        )


def _growth(facts: Facts, reuse: _Reuse) -> float | None:
    """How much longer the gradient of all parameters of the optimizer became."""
    held: set[Key] = {
        (model.name, p.path)
        for model, p in parameters(facts, reuse.position)
        if p.group.startswith(f"{reuse.optimizer}.")
    }
    series = [s for key, s in gradients(facts).items() if key in held and reuse.position in s.positions]
    if not series or any(len(s.steps) < FEWEST for s in series):
        return None
    norms = np.sqrt(sum(s.of(reuse.position, "norm")[[0, -1]] ** 2 for s in series))
    return float(norms[1] / norms[0]) if norms[0] > 0 and np.isfinite(norms).all() else None
