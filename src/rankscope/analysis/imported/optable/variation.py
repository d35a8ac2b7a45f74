"""What is left of compute times when stage and rank are taken out: noise, or work that differs from step to step.

Work that depends on the data has two signs that noise has not. The same micro-batch is long in the forward pass and in
the backward pass, on each stage that it goes through; or all operations of one rank are long in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.optable.effects import Means, Scale, without
from rankscope.analysis.imported.optable.grid import Floats, mean_there
from rankscope.analysis.imported.optable.kinds import BACKWARD, FORWARD
from rankscope.analysis.imported.optable.replay import Measured

CORRELATION = 0.6
"""Between forward and backward of the same micro-batch; chance gives 0. The paper sees 0.9 and more with sequences of
different length."""
BEYOND_CHANCE = 4.0
"""Variance of what the operations of one rank and step have in common, over that of chance (1): 4 is beyond 0.1 % with
the dozens of cells that a table has at the least."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The part of the variation that has a structure."""

    scale: Scale
    """Takes it out, and the rest of the variation stays."""
    correlation: float | None
    """Of forward and backward of the same micro-batch; None where they cannot be paired."""
    common: float
    """Variance of what one rank's operations have in common in a step, over that of chance."""
    by_micro_batch: bool
    """It goes with micro-batches rather than with ranks and steps."""
    excess: Floats
    """[stage, lane, step] by how much the rank was longer than it usually is, as a share."""
    spread: float
    """Longest over shortest micro-batch of a step, median over steps."""

    @property
    def told(self) -> bool:
        """Whether this is more than noise."""
        if self.by_micro_batch:
            return self.correlation is not None and self.correlation >= CORRELATION
        return self.common >= BEYOND_CHANCE


def variation(jobs: Sequence[Measured], found: Means, base: Scale) -> Variation | None:
    """None where there is no compute of micro-batches. `base`: what is taken out before, like a slow rank."""
    parts = [_residuals(m, base) for m in jobs]
    if not any(np.isfinite(part).any() for part in parts):
        return None
    correlation = _correlation(jobs, parts)
    common, cells = _common(jobs, parts, found)
    by_cell = _divided(jobs, [_cell_part(m, part) for m, part in zip(jobs, parts, strict=True)])
    by_batch = _divided(jobs, [_batch_part(m, part) for m, part in zip(jobs, parts, strict=True)])
    batch = correlation is not None and (
        without(jobs, lambda m, i: base(m, i) * by_batch(m, i)) < without(jobs, lambda m, i: base(m, i) * by_cell(m, i))
    )
    return Variation(
        scale=by_batch if batch else by_cell,
        correlation=correlation,
        common=common,
        by_micro_batch=batch,
        excess=cells,
        spread=_spread(parts),
    )


def _divided(jobs: Sequence[Measured], parts: list[Floats]) -> Scale:
    which = {id(m): part for m, part in zip(jobs, parts, strict=True)}
    return lambda m, i: 1 / (1 + which[id(m)][i])


def _residuals(m: Measured, base: Scale) -> Floats:
    """[op, step, lane] by how much longer than its rank usually takes, beyond what all ranks took longer in that step;
    NaN for what is no compute of a micro-batch, or was not recorded."""
    out = np.full(m.own.shape, np.nan)
    of_kind: dict[tuple[int, int], list[int]] = {}
    of_pass: dict[str, list[int]] = {}
    for i, op in enumerate(m.block.ops):
        direction = m.block.kind_of(i).compute
        if direction:
            out[i] = m.block.duration[i] * base(m, i)
            of_kind.setdefault((op.stage, op.kind), []).append(i)
            of_pass.setdefault(direction, []).append(i)
    for rows in of_kind.values():
        usual = mean_there(out[rows], (0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            out[rows] = out[rows] / usual - 1
    out[~np.isfinite(out)] = np.nan
    if m.own.shape[2] > 1:
        for rows in of_pass.values():
            values = out[rows]
            there = np.isfinite(values)
            step = np.where(there, values, 0).sum(axis=(0, 2)) / np.maximum(1, there.sum(axis=(0, 2)))
            out[rows] = values - step[None, :, None]
    # A factor of 1 + r must stay positive: it is divided by.
    limited: Floats = np.maximum(out, -0.9)
    return limited


def _pairs(m: Measured) -> list[tuple[int, int]]:
    """(forward, backward) of the same place in the order of micro-batches, on one stage and chunk."""
    places: dict[tuple[int, int, str], list[int]] = {}
    for i, op in enumerate(m.block.ops):
        direction = m.block.kind_of(i).compute
        if direction:
            places.setdefault((op.stage, op.chunk, direction), []).append(i)
    found = []
    for (stage, chunk, direction), forward in places.items():
        backward = places.get((stage, chunk, BACKWARD))
        if direction == FORWARD and backward is not None and len(backward) == len(forward):
            by_number = {int(m.block.micro_batch[b, 0, 0]): b for b in backward}
            numbers = [int(m.block.micro_batch[f, 0, 0]) for f in forward]
            if len(by_number) == len(backward) and set(numbers) == set(by_number):
                found += [(f, by_number[n]) for f, n in zip(forward, numbers, strict=True)]
            else:
                found += list(zip(forward, backward, strict=True))
    return found


def _correlation(jobs: Sequence[Measured], parts: Sequence[Floats]) -> float | None:
    forward, backward = [], []
    for m, part in zip(jobs, parts, strict=True):
        for f, b in _pairs(m):
            good = np.isfinite(part[f]) & np.isfinite(part[b])
            forward.append(part[f][good])
            backward.append(part[b][good])
    if not forward:
        return None
    x, y = np.concatenate(forward), np.concatenate(backward)
    if len(x) < 8 or not x.std() > 0 or not y.std() > 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _batch_part(m: Measured, part: Floats) -> Floats:
    """[op, step, lane] the share of a residual that its micro-batch has in both passes and on all stages."""
    out = np.zeros(part.shape)
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    position: dict[tuple[int, int], int] = {}
    for f, b in _pairs(m):
        op = m.block.ops[f]
        number = int(m.block.micro_batch[f, 0, 0])
        if number < 0:
            number = position.get((op.stage, op.chunk), 0)
            position[op.stage, op.chunk] = number + 1
        groups.setdefault((number, 0), []).append((f, b))
    if not groups:
        return out
    all_pairs = [pair for own in groups.values() for pair in own]
    of_pass = {FORWARD: [f for f, _ in all_pairs], BACKWARD: [b for _, b in all_pairs]}
    spread = {d: max(_deviation(part[rows]), 1e-12) for d, rows in of_pass.items()}
    for pairs in groups.values():
        of_both = [(f, FORWARD) for f, _ in pairs] + [(b, BACKWARD) for _, b in pairs]
        shares = np.stack([part[i] / spread[d] for i, d in of_both])
        there = np.isfinite(shares)
        shared = np.where(there, shares, 0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
        for i, direction in of_both:
            out[i] = np.maximum(shared * spread[direction], -0.9)
    return out


def _deviation(values: Floats) -> float:
    there = values[np.isfinite(values)]
    return float(there.std()) if len(there) else 0.0


def _cell_part(m: Measured, part: Floats) -> Floats:
    """[op, step, lane] the share of a residual that all compute of its rank has in that step."""
    out = np.zeros(part.shape)
    for stage in {op.stage for op in m.block.ops}:
        rows = [i for i, op in enumerate(m.block.ops) if op.stage == stage and m.block.kind_of(i).compute]
        if rows:
            there = np.isfinite(part[rows])
            out[rows] = np.where(there, part[rows], 0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
    return out


def _common(jobs: Sequence[Measured], parts: Sequence[Floats], found: Means) -> tuple[float, Floats]:
    """(variance of the means of ranks and steps over that of chance, those means as [stage, lane, step])."""
    num_stages, num_lanes = found.per_step.shape[1:3]
    cells = np.full((num_stages, num_lanes, len(found.steps)), np.nan)
    between, within, each = [], [], []
    for m, part in zip(jobs, parts, strict=True):
        columns = np.searchsorted(found.steps, m.block.steps)
        for stage in range(num_stages):
            rows = [i for i, op in enumerate(m.block.ops) if op.stage == stage and m.block.kind_of(i).compute]
            if not rows:
                continue
            values = part[rows]
            there = np.isfinite(values).sum(axis=0)
            mean = np.where(there > 0, np.nansum(values, axis=0) / np.maximum(1, there), np.nan)
            cells[stage][:, columns] = mean.T
            if len(rows) > 1:
                good = there == len(rows)
                between.append((mean[good] - np.mean(mean[good])) ** 2 if good.any() else np.zeros(0))
                within.append(values[:, good].var(axis=0, ddof=1))
                each.append(np.full(int(good.sum()), len(rows)))
    if not between or not sum(len(b) for b in between):
        return 0.0, cells
    b, w, n = np.concatenate(between), np.concatenate(within), np.concatenate(each)
    chance = float(np.mean(w / n))
    return (float(np.mean(b)) / chance if chance > 0 else 0.0), cells


def _spread(parts: Sequence[Floats]) -> float:
    """Longest over shortest compute of one kind in a step, beside what its rank usually takes; median over steps."""
    ratios = []
    for part in parts:
        flat = part.transpose(1, 0, 2).reshape(part.shape[1], -1)
        for row in flat:
            good = row[np.isfinite(row)]
            if len(good) > 1:
                ratios.append((1 + good.max()) / (1 + good.min()))
    return float(np.median(ratios)) if ratios else 1.0
