"""What became of gradients between the last backward and the optimizer: scaled, clipped, reduced by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import tensors
from rankscope.analysis.facts import Facts, Ints
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import Rows, column
from rankscope.analysis.tensors import Key
from rankscope.records.gradient_calls import GradientClip, LossFactor, ScalerStep
from rankscope.records.training import Backward

Floats = NDArray[np.float64]

EXACT: Final = 1e-5
"""Relative difference of two ratios of root mean squares that are the same number: those of 256 float32 numbers are
known to about 1e-7. Two gradients that were reduced, not scaled, never agree so well."""
EXACT_HALF: Final = 5e-3
"""The same for gradients in half precision."""
ADAPTIVE: Final = ("Adam", "Rprop", "RMSprop", "Adagrad", "Adadelta", "Lion", "Lamb", "LARS", "Adafactor", "Muon",
                   "Sophia", "Novo")  # fmt: skip
"""Parts of the names of optimizers that divide by the size of the gradient: its scale changes nothing lasting."""


@dataclass(frozen=True, slots=True)
class Path:
    """The gradients of one rank on the sampled steps, as backward left them and as the optimizer got them."""

    keys: tuple[Key, ...]
    steps: Ints
    raw: Floats
    """[p, k] root mean square of the sample; NaN where it is not known."""
    final: Floats
    untouched: NDArray[np.bool_]
    """[p, k] the sample's bits are the same."""
    norm: Floats
    """[k] L2 norm of all of them as the optimizer got them; NaN: not known."""

    @property
    def ratio(self) -> Floats:
        """[p, k] final over raw; NaN where there is nothing to compare."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((self.raw > 0) & (self.final > 0), self.final / self.raw, np.nan)


def path(facts: Facts, position: int) -> Path:
    return facts.once(_path, position)


def factors(facts: Facts, position: int) -> dict[int, float]:
    """Sampled step -> what its last loss was multiplied with."""
    rows = facts.rows(LossFactor, position, window=False)
    return dict(zip(rows["step"].tolist(), column(rows, LossFactor, "factor").tolist(), strict=True))


def has_scaler(facts: Facts) -> bool:
    """Whether a GradScaler scales the loss: then the loss's factor is undone by it."""
    return bool(len(facts.tables.of(ScalerStep)))


def clips(facts: Facts, position: int) -> Rows:
    """All clipping calls of a rank."""
    return facts.rows(GradientClip, position, window=False)


def adaptive(facts: Facts) -> bool:
    """Whether every optimizer divides by the size of the gradient."""
    stock = tensors.inventory(facts, 0)
    kinds = [o.kind for o in stock.optimizers] if stock is not None else []
    return bool(kinds) and all(any(part.lower() in kind.lower() for part in ADAPTIVE) for kind in kinds)


def backward_place(facts: Facts, position: int) -> Place | None:
    """The line that calls backward most often."""
    rows = facts.rows(Backward, position, window=False)
    if not len(rows):
        return None
    sites, counts = np.unique(rows["name"], return_counts=True)
    return facts.place(position, int(sites[int(np.argmax(counts))]))


def _path(facts: Facts, position: int) -> Path:
    finals, raws = tensors.gradients(facts), tensors.raw_gradients(facts)
    keys = tuple(key for key, series in finals.items() if position in series.positions)
    steps = np.unique(np.concatenate([finals[key].steps for key in keys])) if keys else np.empty(0, np.int64)
    shape = (len(keys), len(steps))
    raw, final, squares = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    untouched = np.zeros(shape, bool)
    for i, key in enumerate(keys):
        one = finals[key]
        at = np.searchsorted(steps, one.steps)
        final[i, at] = one.of(position, "rms")
        squares[i, at] = one.of(position, "norm") ** 2
        before = raws.get(key)
        if before is None or position not in before.positions:
            continue
        common, left, right = np.intersect1d(before.steps, one.steps, return_indices=True)
        at = np.searchsorted(steps, common)
        raw[i, at] = before.of(position, "rms")[left]
        prints = one.of(position, "fingerprint")[right], before.of(position, "fingerprint")[left]
        untouched[i, at] = prints[0] == prints[1]
    return Path(keys, steps.astype(np.int64), raw, final, untouched, np.sqrt(np.nansum(squares, axis=0)))
