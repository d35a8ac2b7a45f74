"""Finds gradient accumulation whose gradient grows with the number of micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts, Ints, Mask
from rankscope.analysis.gradient_path import adaptive, clips, path
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.gradient_calls import GradientClip, LossFactor, ScalerStep
from rankscope.records.loading import BatchWait
from rankscope.records.training import Backward, Forward

ONE_LINE: Final = 0.9
"""Share of the backward calls that must come from one line to be the micro-batches of one loss."""
NEAR: Final = 0.02
"""Relative distance within which a factor is one over a whole number."""
REGULARLY: Final = 0.25
"""Share of the steps that must have several backward calls."""
MEAN_SHRINKS: Final = 0.9
"""With some room for the noise of a sample."""
OFTEN: Final = 0.05
"""Share of the windows from which on short ones matter: once in a long epoch changes nothing that lasts."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The accumulation of one rank: windows of micro-batches that one optimizer step ends."""

    steps: Ints
    sizes: Ints
    """[w] micro-batches."""
    usual: int
    place: Place | None

    @property
    def short(self) -> Mask:
        """[w] fewer micro-batches than usual, without the last window of the run."""
        found = self.sizes < self.usual
        found[-1:] = False
        return np.asarray(found)


class AccumulationNotNormalised(Detector):
    """The gradient of an optimizer step grows with the number of its micro-batches, or shrinks in short windows.

    ## What it is
    Gradients of micro-batches add up. Unless each loss is divided by their number, K micro-batches make the gradient,
    and with SGD the step, K times as large as one batch of the same data; another K is another learning rate. Divided
    by a fixed K, a window with fewer micro-batches (the last one of an epoch) counts too little.

    ## What shows it
    Several backward calls of one line between two optimizer steps, each of a forward of its own; no division of the
    loss by their number just before backward (read from its graph), and no division of the gradients after it.

    ## What else looks like it
    Several losses of one batch, sequences that are trained piece by piece, and tasks that are summed on purpose are
    told apart by their forwards and batches. A sum over tokens that is divided by their number in the whole window is
    right. With Adam the scale has no lasting effect unless gradients are clipped: then it is a remark.

    ## What to do
    Divide each loss by the number of micro-batches of its window, counted, not assumed.
    """

    name = "accumulation-not-normalised"
    needs = (Backward, LossFactor)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        windows = _windows(facts, 0)
        if windows is None:
            return
        factors = _factors(facts, 0)
        known = {s: f for s, f in factors.items() if np.isfinite(f)}
        if not known:
            raise CannotExamine("what the loss is multiplied with is not known")
        size_of = dict(zip(windows.steps.tolist(), windows.sizes.tolist(), strict=True))
        known = {s: f for s, f in known.items() if s in size_of}
        divided = _divided_later(facts, 0)
        after = {s: f * divided.get(s, 1.0) for s, f in known.items()}
        several = {s: f for s, f in after.items() if size_of[s] > 1}
        plain = [s for s, f in several.items() if abs(f - 1) < NEAR]
        if several and len(plain) == len(several):
            yield self._not_divided(facts, windows, size_of, plain)
        elif several:
            yield from self._short(facts, windows, after)

    def _not_divided(self, facts: Facts, windows: Windows, size_of: dict[int, int], plain: list[int]) -> Finding:
        often = max(2, OFTEN * len(windows.sizes))
        common = [size for size, n in Counter(windows.sizes.tolist()).items() if n >= often]
        varies = len(common) > 1
        matters = varies or not adaptive(facts) or bool(len(clips(facts, 0)))
        text = f"{min(common)} to {max(common)}" if varies else str(windows.usual)
        norms = _norm_by_size(facts, size_of) if varies else {}
        return _finding(
            facts, windows, ("warning" if matters else "info", 0.85 if varies else 0.7, min(plain)),
            f"the gradients of {text} micro-batches are added up and not divided{wording.at(windows.place)}: a step is "
            f"up to {max([windows.usual, *common])} times as large as that of one batch",
            (
                Evidence("micro-batches in a window", float(windows.usual), "count"),
                Evidence("what each loss is multiplied with before backward", 1.0, "x"),
                *(Evidence(f"norm of the gradient with {size} micro-batches", norm, "L2 norm")
                  for size, norm in sorted(norms.items())),
            ),
        )  # fmt: skip

    def _short(self, facts: Facts, windows: Windows, after: dict[int, float]) -> Iterator[Finding]:
        """The loss is divided by the usual number, also in windows that have fewer micro-batches."""
        by = float(np.median(list(after.values())))
        short = windows.short
        if not short.any() or abs(by * windows.usual - 1) > NEAR:
            return
        sampled = [s for s in windows.steps[short].tolist() if s in after]
        wrong = [s for s in sampled if abs(after[s] / by - 1) < NEAR]
        if not wrong or len(wrong) < len(sampled):
            return
        share = float(short.mean())
        size = int(np.median(windows.sizes[short]))
        yield _finding(
            facts, windows, ("warning" if share >= OFTEN else "info", 0.75, int(windows.steps[short][0])),
            f"windows of {size} micro-batches are divided by {windows.usual} like full ones"
            f"{wording.at(windows.place)}: {wording.percent(share)} of the steps count {size}/{windows.usual} of what "
            "they should",
            (
                Evidence("windows with fewer micro-batches than usual", float(short.sum()), "count"),
                Evidence("of so many windows", float(len(short)), "count"),
                Evidence("micro-batches in them", float(size), "count"),
                Evidence("what each loss is divided by", 1 / by, "x"),
            ),
        )  # fmt: skip


def _windows(facts: Facts, position: int) -> Windows | None:
    """None where a step has one backward, or where its backward calls are no micro-batches."""
    rows = facts.rows(Backward, position, window=False)
    if not len(rows):
        return None
    site, most = Counter(rows["name"].tolist()).most_common(1)[0]
    if most < ONE_LINE * len(rows):
        return None
    done = facts.step_count(position)
    steps, sizes = np.unique(rows["step"][rows["step"] < done], return_counts=True)
    sizes = np.maximum(1, sizes // _attempts(facts, position, steps))
    # Now and then a second backward: a step that was left out (a loss scale, a gradient that is not finite).
    if not len(sizes) or (sizes > 1).mean() < REGULARLY:
        return None
    forwards = facts.rows(Forward, position, window=False)
    forwards = forwards[column(forwards, Forward, "grad") == 1] if len(forwards) else forwards
    if _fewer(np.sort(forwards["step"]), steps, sizes):
        return None  # several losses of one forward
    batches = facts.rows(BatchWait, position, window=False)
    if len(batches) and _fewer(np.sort(batches["step"]), steps, sizes):
        return None  # one batch, piece by piece
    usual = int(Counter(sizes.tolist()).most_common(1)[0][0])
    return Windows(steps.astype(np.int64), sizes.astype(np.int64), usual, facts.place(position, int(site)))


def _attempts(facts: Facts, position: int, steps: Ints) -> Ints:
    """[w] optimizer steps that a GradScaler made or left out in each step, at least 1."""
    found = Counter(facts.rows(ScalerStep, position, window=False)["step"].tolist())
    return np.array([max(1, found[step]) for step in steps.tolist()], np.int64)


def _fewer(of: Ints, steps: Ints, sizes: Ints) -> bool:
    """Whether most windows have fewer of these (the step of each, rising) than micro-batches."""
    counts = np.searchsorted(of, steps, side="right") - np.searchsorted(of, steps, side="left")
    many = sizes > 1
    return bool((counts[many] < sizes[many]).mean() > 1 - ONE_LINE) if many.any() else False


def _factors(facts: Facts, position: int) -> dict[int, float]:
    """Sampled step -> what its losses were multiplied with, without a GradScaler's scale."""
    rows = facts.rows(LossFactor, position, window=False)
    scaler = facts.rows(ScalerStep, position, window=False)
    scales = dict(zip(scaler["step"].tolist(), column(scaler, ScalerStep, "scale").tolist(), strict=True))
    found: dict[int, list[float]] = {}
    for step, factor in zip(rows["step"].tolist(), column(rows, LossFactor, "factor").tolist(), strict=True):
        found.setdefault(step, []).append(factor / scales.get(step, 1.0 if not scales else float("nan")))
    return {step: float(np.median(values)) for step, values in found.items()}


def _divided_later(facts: Facts, position: int) -> dict[int, float]:
    """Sampled step -> what gradients were multiplied with between backward and optimizer, without clipping."""
    if len(facts.tables.of(ScalerStep)):
        return {}
    gradients = path(facts, position)
    calls = clips(facts, position)
    found = {}
    for k, step in enumerate(gradients.steps.tolist()):
        values = gradients.ratio[:, k]
        if not np.isfinite(values).any():
            continue
        ratio = float(np.nanmedian(values))
        if np.nanmax(values) / np.nanmin(values) - 1 > NEAR:
            # Reduced by hand in between: a mean over ranks shrinks gradients by the root of their number at most.
            ratio = 1.0 if ratio >= MEAN_SHRINKS / np.sqrt(facts.world_size) else ratio
        mine = calls[calls["step"] == step]
        limit, norm = (column(mine, GradientClip, f) for f in ("limit", "norm"))
        if len(mine) and np.isfinite(norm[-1]) and norm[-1] > limit[-1] > 0:
            ratio *= float(norm[-1] / limit[-1])
        found[step] = ratio
    return found


def _norm_by_size(facts: Facts, size_of: dict[int, int]) -> dict[int, float]:
    gradients = path(facts, 0)
    by_size: dict[int, list[float]] = {}
    for step, norm in zip(gradients.steps.tolist(), gradients.norm.tolist(), strict=True):
        if step in size_of and np.isfinite(norm):
            by_size.setdefault(size_of[step], []).append(norm)
    return {size: float(np.median(values)) for size, values in by_size.items()}


def _finding(
    facts: Facts, windows: Windows, how: tuple[str, float, int], title: str, evidence: tuple[Evidence, ...]
) -> Finding:
    severity, confidence, first = how
    return Finding(
        cause=AccumulationNotNormalised.name,
        severity=severity,  # type: ignore[arg-type]  # one of the three words
        confidence=confidence,
        title=title,
        ranks=facts.numbers(range(facts.size)),
        all_ranks=True,
        phase="backward",
        component="loss of a micro-batch",
        location=wording.location(windows.place),
        first_step=first,
        last_step=facts.all_steps - 1,
        cost=Cost(None, None, None),
        evidence=evidence,
        next=("divide each loss by the number of micro-batches of its window, counted where it is short",),
    )
