"""The first loss that was not finite: on which rank and step, and what its graph told of the origin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import Rows, column
from rankscope.analysis.tensors import gradients
from rankscope.base.finding import Evidence
from rankscope.records.loading import BatchWait, Fetch
from rankscope.records.not_finite import BATCH, GRADIENT, NOTHING_TO_LEARN, PARAMETER, NotFinite
from rankscope.records.numerics import LossValue


@dataclass(frozen=True, slots=True)
class LostLoss:
    """The first one of the run. A later one only follows from it."""

    positions: tuple[int, ...]
    """Ranks that had it in the same step, by the same origin."""
    step: int
    origin: int
    """As in `NotFinite`."""
    what: str
    """The operation, or the tensor of the batch."""
    module: str
    """The parameter before the operation, or the first one that was lost."""
    detail: str
    low: float
    high: float
    place: Place | None
    """Where backward was called."""
    batch: int | None
    """Batches of the pass before."""
    first_index: int | None
    """Of the batch's samples, where it is known."""
    dataset: str
    affected: int
    parameters: int
    losses: int
    """Losses of these ranks that were not finite."""
    of_losses: int

    @property
    def from_data(self) -> bool:
        return self.origin in (BATCH, NOTHING_TO_LEARN)

    @property
    def lasting(self) -> bool:
        """Whether parameters were lost, or every loss after it."""
        return bool(self.affected) or (self.losses > 1 and self.losses >= self.of_losses)

    @property
    def first_step(self) -> int:
        """When it happened: a parameter that is lost was lost by the step before."""
        return max(0, self.step - 1) if self.origin == PARAMETER else self.step


def lost_loss(facts: Facts) -> LostLoss | None:
    """The first lost loss; None where every loss was finite."""
    return facts.once(_lost_loss)


def _lost_loss(facts: Facts) -> LostLoss | None:
    rows = {p: mine for p in range(facts.size) if len(mine := _harmful(facts, p))}
    if not rows:
        return None
    step = min(int(mine["step"][0]) for mine in rows.values())
    first = {p: mine[:1] for p, mine in rows.items() if int(mine["step"][0]) == step}
    # Where one rank has a batch at fault, its peers only have what came of it.
    origins = {p: int(column(mine, NotFinite, "origin")[0]) for p, mine in first.items()}
    origin = min(origins.values())
    positions = tuple(p for p, mine in origins.items() if mine == origin)
    position = positions[0]
    row = first[position]
    lost, counted = _counted(facts, positions, step)
    later = max(int(column(mine, NotFinite, "affected").max()) for mine in rows.values())
    return LostLoss(
        positions=positions,
        step=step,
        origin=origin,
        what=_text(facts, position, int(row["name"][0])),
        module=_text(facts, position, int(column(row, NotFinite, "module")[0])),
        detail=_text(facts, position, int(column(row, NotFinite, "detail")[0])),
        low=float(column(row, NotFinite, "low")[0]),
        high=float(column(row, NotFinite, "high")[0]),
        place=facts.place(position, int(column(row, NotFinite, "site")[0])),
        batch=int(column(row, NotFinite, "ordinal")[0]) if column(row, NotFinite, "loaded")[0] else None,
        first_index=_first_index(facts, position, int(row["time_ns"][0])),
        dataset=_dataset(facts, position, int(row["time_ns"][0])),
        affected=later,
        parameters=int(column(row, NotFinite, "parameters")[0]),
        losses=lost,
        of_losses=counted,
    )


def _harmful(facts: Facts, position: int) -> Rows:
    """Of one rank, by time. Gradients that no optimizer got are left out: a loss scaler skips such steps."""
    rows = facts.rows(NotFinite, position, window=False)
    used = [int(s) for series in gradients(facts).values() for s in series.steps[(series["finite"] == 0).any(axis=0)]]
    return np.asarray(rows[(column(rows, NotFinite, "origin") != GRADIENT) | np.isin(rows["step"], used)])


def evidence(facts: Facts, lost: LostLoss) -> tuple[Evidence, ...]:
    """What is known of it, most telling first."""
    ranks = facts.numbers(lost.positions)
    found = []
    if lost.detail:
        found.append(Evidence(f"{lost.what}: {lost.detail}", None, "", ranks))
    if not math.isnan(lost.low):
        found.append(Evidence("smallest finite value that went in", lost.low, "", ranks))
        found.append(Evidence("largest finite value that went in", lost.high, "", ranks))
    if lost.batch is not None:
        found.append(Evidence("batches of the pass before this one", float(lost.batch), "count", ranks))
    if lost.first_index is not None:
        found.append(Evidence("index of the first sample of the batch", float(lost.first_index), "", ranks))
    words = f"losses not finite, of {lost.of_losses} from step {lost.step} on"
    found.append(Evidence(words, lost.losses, "count", ranks))
    if lost.affected:
        found.append(Evidence(f"parameters not finite afterwards, of {lost.parameters}", lost.affected, "count"))
    return tuple(found)


def _counted(facts: Facts, positions: tuple[int, ...], step: int) -> tuple[int, int]:
    """(losses that were not finite, all) of these ranks from a step on."""
    lost = counted = 0
    for position in positions:
        rows = facts.rows(LossValue, position, window=False)
        rows = rows[rows["step"] >= step]
        counted += len(rows)
        lost += int((~np.isfinite(column(rows, LossValue, "value"))).sum())
    return lost, max(counted, 1)


def _text(facts: Facts, position: int, id: int) -> str:
    return facts.tables.name(facts.ranks[position].pid, id)


def _first_index(facts: Facts, position: int, time_ns: int) -> int | None:
    """Of the batch that the rank itself fetched last; of workers it is not known which fetch it was."""
    rows = facts.rows(Fetch, position, window=False)
    rows = rows[(rows["time_ns"] < time_ns) & (column(rows, Fetch, "worker") == 0)]
    return int(column(rows, Fetch, "first_index")[-1]) if len(rows) and column(rows, Fetch, "samples")[-1] else None


def _dataset(facts: Facts, position: int, time_ns: int) -> str:
    rows: Rows = facts.rows(BatchWait, position, window=False)
    rows = rows[rows["time_ns"] < time_ns]
    return _text(facts, position, int(rows["name"][-1])) if len(rows) else ""
