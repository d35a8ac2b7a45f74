"""Finds gradients that are summed over ranks more than once, or summed where their mean is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis import tensors, wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.gradient_path import EXACT_HALF, adaptive, backward_place, clips, factors, has_scaler, path
from rankscope.analysis.replicas import (
    DDP,
    MANY_ELEMENTS,
    RARELY,
    communicates,
    differ,
    losses_differ,
    reduced_by_hand,
    reduced_in_backward,
    replicas,
    rows_of,
    trained_elements,
    wrappers,
)
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.collective import Collective
from rankscope.records.gradient_calls import SUMMED_TWICE, GradientSet
from rankscope.records.numerics import GradientStat
from rankscope.records.training import Call

MORE_THAN_MEAN: Final = 1.02
"""Size of the reduced gradient over the mean size of those that went in: of a mean never above 1, of a sum of
independent ones the root of their number."""


@dataclass(frozen=True, slots=True)
class Double:
    """One way in which gradients are reduced too often."""

    text: str
    factor: float | None
    """By which they are too large; 1: the same number comes out; None: not known."""
    component: str
    place: Place | None
    first: int
    severity: str
    evidence: tuple[Evidence, ...]
    next: tuple[str, ...]


class GradientsDoubleReduced(Detector):
    """Gradients are reduced more than once, or summed where their mean is wanted: they are too large.

    ## What it is
    `DistributedDataParallel` averages gradients and the program all-reduces them again; a reduction by hand sums and
    does not divide; an all-reduce inside of the forward whose backward all-reduces, too, where every rank computes the
    same loss, so that the gradient of what lies before it is counted once for each rank.

    ## What shows it
    Reductions in backward and, of the same size, after it in the same step; the ratio of a gradient's size before and
    after; the graph of the loss, with equal losses on all ranks.

    ## What else looks like it
    Metrics and losses that are reduced are small. A loss that is divided by the number of ranks may be summed. Where
    ranks compute different losses (contrastive learning over gathered features), a sum in backward is right.

    ## What to do
    Reduce once. Divide by the number of ranks after a sum. Inside of a forward, use an operation whose backward passes
    the gradient through.
    """

    name = "gradients-double-reduced"
    needs = (GradientStat, Collective)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if facts.size < 2 or not communicates(facts):
            raise CannotExamine("one rank, or ranks that do not communicate: nothing is reduced")
        found = _in_forward(facts) or _twice(facts) or _summed(facts)
        if found is None:
            return
        effect = "" if found.factor is None else (
            "; the result is the same, the time is lost" if found.factor == 1
            else f"; they are {found.factor:.3g} times as large as their mean"
        )  # fmt: skip
        yield Finding(
            cause=self.name,
            severity=found.severity,  # type: ignore[arg-type]  # one of the three words
            confidence=0.9 if found.severity == "critical" else 0.7,
            title=f"{found.text}{wording.at(found.place)}{effect}",
            ranks=facts.numbers(range(facts.size)),
            all_ranks=True,
            phase="communication",
            component=found.component,
            location=wording.location(found.place or backward_place(facts, 0)),
            first_step=found.first,
            last_step=facts.all_steps - 1,
            cost=Cost(None, None, None),
            evidence=found.evidence,
            next=found.next,
        )


def _in_forward(facts: Facts) -> Double | None:
    """An all-reduce in the forward that sums in backward as well, of a loss that all ranks compute alike."""
    rows = facts.rows(GradientSet, 0, window=False)
    rows = rows[column(rows, GradientSet, "what") == SUMMED_TWICE] if len(rows) else rows
    if not len(rows) or losses_differ(facts):
        return None
    n = facts.world_size
    divided = [abs(f * n - 1) < EXACT_HALF for f in factors(facts, 0).values()]
    if divided and all(divided):
        return None
    pid = facts.ranks[0].pid
    names = facts.tables.name(pid, int(rows["name"][0])).split()
    # A mean over the ranks afterwards (a wrapper's, or by hand) takes the factor out again.
    if any((key[1] in names) and one.meant and _averaged(facts, key) for key, one in replicas(facts).items()):
        return None
    calls = [facts.tables.name(pid, int(r["name"])) for r in facts.rows(Call, 0, window=False)]
    kind = next((c for c in calls if c.endswith(".backward")), "all_reduce.backward")
    place = _forward_place(facts)
    count = int(column(rows, GradientSet, "count")[0])
    return Double(
        f"{kind.removesuffix('.backward')} sums over ranks in forward and in backward again, and all ranks compute the "
        f"same loss: gradients of {', '.join(names[:3])} are counted once a rank",
        float(n), ", ".join(names[:3]), place, int(rows["step"][0]), "critical",
        (
            Evidence("parameters before the operation", float(count), "count"),
            Evidence("steps on which losses differ between ranks", 0.0, "count"),
            Evidence("ranks that are summed", float(n), "count"),
        ),
        ("use an operation that passes the gradient through in backward (identity), or divide there by the ranks",),
    )  # fmt: skip


def _averaged(facts: Facts, key: tuple[str, str]) -> bool:
    wrapped = any(m.name == key[0] and m.wrapper == DDP for m, _ in tensors.parameters(facts, 0))
    return wrapped or key[0] in wrappers(facts)


def _twice(facts: Facts) -> Double | None:
    """A wrapper averages in backward, and the program reduces the same gradients after it."""
    if not _equal_after_backward(facts):
        return None  # what was reduced in backward belongs to the model: pieces of activations
    needed = MANY_ELEMENTS * trained_elements(facts, 0)
    by_hand, inside = reduced_by_hand(facts, 0, gradients=True), reduced_in_backward(facts, 0)
    both = [s for s in by_hand if by_hand[s] >= needed and inside.get(s, 0) >= needed] if needed else []
    if len(both) <= RARELY * max(1, facts.step_count(0)):
        return None
    gradients = path(facts, 0)
    clipped = bool(len(clips(facts, 0))) or has_scaler(facts)
    ratio = None
    at = np.isin(gradients.steps, both)
    if at.any() and not clipped:
        ratio = float(np.nanmedian(gradients.ratio[:, at]))
        if abs(ratio - 1) < EXACT_HALF:
            ratio = 1.0
    severity = "critical" if ratio is not None and ratio != 1 and not adaptive(facts) else "warning"
    place = _hand_place(facts)
    evidence = [Evidence("steps with reductions of its size in backward and after it", float(len(both)), "count")]
    if ratio is not None:
        evidence.append(Evidence("size of a gradient after over before the second reduction", ratio, "x"))
    return Double(
        "gradients are averaged in backward by DistributedDataParallel and reduced again", ratio,
        _model(facts), place, min(both), severity, tuple(evidence),
        ("remove the reduction by hand, or the wrapper",),
    )  # fmt: skip


def _equal_after_backward(facts: Facts) -> bool:
    """Whether backward left equal gradients on all ranks: something had averaged them."""
    raws = [one for one in tensors.raw_gradients(facts).values() if len(one.positions) == facts.size and len(one.steps)]
    return bool(raws) and sum(bool(one.equal.all()) for one in raws) > len(raws) / 2


def _summed(facts: Facts) -> Double | None:
    """A reduction by hand whose result is larger than any mean could be."""
    if has_scaler(facts):
        return None
    finals, raws = tensors.gradients(facts), tensors.raw_gradients(facts)
    ratios, first = [], None
    scales = factors(facts, 0)
    for key, one in replicas(facts).items():
        final, raw = finals.get(key), raws.get(key)
        if final is None or raw is None or one.wrapped or not one.meant:
            continue
        steps, left, right = np.intersect1d(final.steps, raw.steps, return_indices=True)
        reduced = differ(raw, one.positions)[right] & ~differ(final, one.positions)[left]
        before = np.sqrt((rows_of(raw, one.positions, "rms")[:, right] ** 2).mean(axis=0))
        after = rows_of(final, one.positions, "rms")[0, left]
        for k in np.flatnonzero(reduced & (before > 0)).tolist():
            ratios.append(float(after[k] / before[k]))
            first = int(steps[k]) if first is None else min(first, int(steps[k]))
    n = facts.world_size
    if not ratios or first is None or float(np.median(ratios)) < MORE_THAN_MEAN:
        return None
    # A loss that is divided beforehand (by the ranks, by all samples or tokens) is meant to be summed.
    if scales and all(f <= (1 + EXACT_HALF) / n for f in scales.values()):
        return None
    return Double(
        f"gradients are summed over {n} ranks and not divided", float(n), _model(facts), _hand_place(facts), first,
        "info" if adaptive(facts) else "warning",
        (
            Evidence("size of the reduced gradient over the mean of those that went in", float(np.median(ratios)), "x"),
            Evidence("ranks that are summed", float(n), "count"),
        ),
        ("divide by the number of ranks, or use ReduceOp.AVG", "or scale the learning rate for a sum, knowingly"),
    )  # fmt: skip


def _model(facts: Facts) -> str:
    return next((m.name for m, p in tensors.parameters(facts, 0) if p.trainable), "gradients")


def _forward_place(facts: Facts) -> Place | None:
    """The line of a reduction outside of backward that has as many elements as one in backward."""
    rows = facts.rows(Collective, 0, window=False)
    inside = set(column(rows[column(rows, Collective, "in_backward") == 1], Collective, "elements").tolist())
    outside = rows[column(rows, Collective, "in_backward") == 0]
    outside = outside[np.isin(column(outside, Collective, "elements"), list(inside))]
    return facts.place(0, int(column(outside, Collective, "site")[0])) if len(outside) else None


def _hand_place(facts: Facts) -> Place | None:
    """The line that gives most elements into reductions outside of backward, once training has begun."""
    rows = facts.rows(Collective, 0, window=False)
    rows = rows[(column(rows, Collective, "in_backward") == 0) & (rows["step"] > 0)]
    sites, inverse = np.unique(column(rows, Collective, "site"), return_inverse=True)
    elements = np.bincount(inverse, weights=column(rows, Collective, "elements"), minlength=len(sites))
    return facts.place(0, int(sites[int(np.argmax(elements))])) if len(sites) else None
