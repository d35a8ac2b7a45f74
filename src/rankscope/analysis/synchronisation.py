"""Which gradients and parameters agree over the ranks that must agree, on which sampled steps, and what parts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis import tensors
from rankscope.analysis.facts import Facts, Floats, Ints, Mask
from rankscope.analysis.gradient_path import EXACT
from rankscope.analysis.replicas import (
    Replica,
    apart,
    differ,
    gap,
    reduced_by_hand,
    reduced_in_backward,
    replicas,
    rows_of,
    wrappers,
)
from rankscope.analysis.tables import Rows
from rankscope.analysis.tensors import Key, Series

MOSTLY: Final = 0.5
"""Share of the sampled steps from the first one on that shows it: a reduction that is missing is missing each time.
What is there now and then is another fault."""
ENOUGH: Final = 100
"""Parameters that tell whether all are scaled by one number."""
FEWEST: Final = 2
"""Sampled steps that must show it."""
LAST_BITS: Final = 1e-6
"""Relative distance of the sizes of two replicas that unlike devices may have: a norm that differs in its last bit."""
SEVERAL: Final = 2
"""Moments at which parameters part, each time only some of them: what a program does to the parameters of one rank
(another learning rate, a file of its own, a step left out) parts them at one moment."""
MOST_AT_ONCE: Final = 0.5
"""Of all replicas, the share that may part at one moment."""


@dataclass(frozen=True, slots=True)
class Unsynchronised:
    """Parameters of one model whose gradients differ over ranks that must agree."""

    model: str
    keys: tuple[Key, ...]
    of: int
    """Parameters of the model that must agree."""
    positions: tuple[int, ...]
    wrapped: bool
    wrapping: Rows | None
    certain: bool
    """The parameters themselves are meant to agree, not only those beside them."""
    reduces: bool
    """Reductions run in these steps all the same."""
    first: int
    last: int
    apart: int
    seen: int

    @property
    def whole(self) -> bool:
        return len(self.keys) == self.of


def unsynchronised(facts: Facts) -> tuple[Unsynchronised, ...]:
    """One a model with such parameters."""
    return facts.once(_unsynchronised)


def unsynchronised_keys(facts: Facts) -> frozenset[Key]:
    return frozenset(key for one in unsynchronised(facts) for key in one.keys)


def common_ratio(facts: Facts) -> dict[int, dict[int, float]]:
    """Sampled step -> position -> by which one number all gradients of that rank's replicas are larger than those of
    the first rank, on steps where that is another number than one: the ranks scale (clip) equal gradients differently.
    """
    return facts.once(_common_ratio)


def _unsynchronised(facts: Facts) -> tuple[Unsynchronised, ...]:
    finals = tensors.gradients(facts)
    scaled = set(common_ratio(facts))
    by_model: dict[str, list[tuple[Replica, Ints, Mask]]] = {}
    sizes: dict[str, int] = {}
    for key, one in replicas(facts).items():
        series = finals.get(key)
        if series is None or set(one.positions) - set(series.positions):
            continue
        sizes[key[0]] = sizes.get(key[0], 0) + 1
        here = apart(series, one.positions) & ~np.isin(series.steps, list(scaled))
        if not here.any():
            continue
        since = int(np.argmax(here))
        if scaled and not one.wrapped and int(series.steps[since]) > min(scaled):
            continue  # replicas that were scaled differently have parted, and their gradients with them
        if here[since:].sum() >= max(FEWEST, MOSTLY * len(here[since:])):
            by_model.setdefault(key[0], []).append((one, series.steps, here))
    return tuple(_group(facts, model, found, sizes[model]) for model, found in by_model.items())


def _group(facts: Facts, model: str, found: list[tuple[Replica, Ints, Mask]], of: int) -> Unsynchronised:
    best = max(found, key=lambda one: int(one[2].sum()))
    first = min(int(steps[here][0]) for _, steps, here in found)
    last = max(int(steps[here][-1]) for _, steps, here in found)
    replica, steps, here = best
    position = replica.positions[0]
    wrapped = wrappers(facts).get(model)
    pid = facts.ranks[position].pid
    rows = next((r for r in wrapped.rows if int(r["process"][0]) == pid), None) if wrapped is not None else None
    reduced = {**reduced_in_backward(facts, position), **reduced_by_hand(facts, position)}
    reduces = all(step in reduced for step in steps[here].tolist())
    return Unsynchronised(
        model, tuple(one.key for one, _, _ in found), of, replica.positions, replica.wrapped, rows,
        all(one.meant for one, _, _ in found), reduces, first, last, int(here.sum()), int((steps >= first).sum()),
    )  # fmt: skip


def _common_ratio(facts: Facts) -> dict[int, dict[int, float]]:
    finals, raws = tensors.gradients(facts), tensors.raw_gradients(facts)
    by_step: dict[int, dict[int, list[tuple[float, bool]]]] = {}
    every = list(replicas(facts).items())
    for key, one in every[:: 1 + len(every) // ENOUGH]:
        final, raw = finals.get(key), raws.get(key)
        if final is None or set(one.positions) - set(final.positions):
            continue
        sizes = rows_of(final, one.positions, "rms")
        same = np.zeros(len(final.steps), bool)
        if raw is not None and not set(one.positions) - set(raw.positions):
            same = np.isin(final.steps, raw.steps[~differ(raw, one.positions)])
        for k, step in enumerate(final.steps.tolist()):
            if not (sizes[:, k] > 0).all() or not np.isfinite(sizes[:, k]).all():
                continue
            for i, position in enumerate(one.positions[1:], 1):
                ratio = float(sizes[i, k] / sizes[0, k])
                by_step.setdefault(step, {}).setdefault(position, []).append((ratio, bool(same[k])))
    found: dict[int, dict[int, float]] = {}
    certain = False
    for step, ranks in by_step.items():
        for position, ratios in ranks.items():
            values = np.array([r for r, _ in ratios])
            all_same = all(equal for _, equal in ratios)
            # Of a single gradient any ratio is one number: then it must have been equal after backward.
            one_number = values.max() / values.min() - 1 <= 2 * EXACT
            if one_number and abs(values[0] - 1) > 10 * EXACT and (len(values) > 1 or all_same):
                found.setdefault(step, {})[position] = float(values[0])
                # Once is enough: replicas that have parted no longer get equal gradients.
                certain = certain or (len(values) > 1 and all_same)
    return found if certain or len(found) >= FEWEST else {}


@dataclass(frozen=True, slots=True)
class Odd:
    """A gradient that on one sampled step differs between ranks, though it agrees on most others."""

    key: Key
    step: int
    positions: tuple[int, ...]
    """The ranks whose copy is the odd one; all where that cannot be told."""
    zero: bool
    """Their copy is nothing but zeros."""
    distance: float


def odd_gradients(facts: Facts) -> tuple[Odd, ...]:
    """Gradients that came out of a reduction and differ now and then, by step."""
    return facts.once(_odd_gradients)


def _odd_gradients(facts: Facts) -> tuple[Odd, ...]:
    finals = tensors.gradients(facts)
    scaled, missing = set(common_ratio(facts)), unsynchronised_keys(facts)
    found = []
    for key, one in replicas(facts).items():
        series = finals.get(key)
        if key in missing or not one.meant or series is None or set(one.positions) - set(series.positions):
            continue
        here = apart(series, one.positions) & ~np.isin(series.steps, list(scaled))
        if not here.any() or here.sum() > MOSTLY * len(here):
            continue
        sizes = rows_of(series, one.positions, "rms")
        prints = rows_of(series, one.positions, "fingerprint")
        usual = np.median(sizes[:, ~here], axis=1)
        for k in np.flatnonzero(here).tolist():
            if _fewer_reductions(facts, one.positions[0], int(series.steps[k])):
                continue
            zero = sizes[:, k] == 0
            odd = zero if zero.any() and not zero.all() else _odd_ones(prints[:, k], sizes[:, k], usual)
            positions = tuple(p for p, is_odd in zip(one.positions, odd.tolist(), strict=True) if is_odd)
            distance = float(1 - sizes[:, k].min() / sizes[:, k].max()) if np.isfinite(sizes[:, k]).all() else 1.0
            found.append(Odd(key, int(series.steps[k]), positions, bool(zero.any() and not zero.all()), distance))
    return tuple(sorted(found, key=lambda one: one.step))


def _odd_ones(prints: Floats, sizes: Floats, usual: Floats) -> Mask:
    """Which ranks have another copy than most; of two, the one whose size is farther from its usual one."""
    values, counts = np.unique(prints, return_counts=True)
    if counts.max() > len(prints) / 2:
        return np.asarray(prints != values[int(np.argmax(counts))])
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.abs(np.log(np.where(sizes > 0, sizes, np.nan) / np.where(usual > 0, usual, np.nan)))
    away = np.nan_to_num(away, nan=np.inf)
    if len(prints) == 2 and not np.isclose(away[0], away[1], rtol=0.5):
        return np.asarray(away == away.max())
    return np.ones(len(prints), bool)


def _fewer_reductions(facts: Facts, position: int, step: int) -> bool:
    """Whether less than usual was reduced in a step: then it is no transfer that went wrong."""
    both = reduced_in_backward(facts, position), reduced_by_hand(facts, position)
    total = {s: both[0].get(s, 0) + both[1].get(s, 0) for s in {*both[0], *both[1]}}
    return total.get(step, 0) < float(np.median(list(total.values()))) if total else True


@dataclass(frozen=True, slots=True)
class Parted:
    """A parameter that must agree and does not, from one sampled step on to the last."""

    key: Key
    positions: tuple[int, ...]
    after: int
    """The last sampled step after which it agreed; -1: it never did."""
    first: int
    distance: float
    """Largest relative distance of its size between ranks."""


def parted_weights(facts: Facts) -> tuple[Parted, ...]:
    """Parameters that must agree and differ at the end, by the step that shows it first."""
    return facts.once(_parted_weights)


def one_after_another(facts: Facts) -> bool:
    """Whether parameters part from their replicas at several moments, each at its own, and nothing else parts them."""
    if unsynchronised(facts) or common_ratio(facts):
        return False
    times = Counter(one.first for one in parted_weights(facts) if one.after >= 0)
    return len(times) >= SEVERAL and max(times.values()) <= MOST_AT_ONCE * len(replicas(facts))


def _parted_weights(facts: Facts) -> tuple[Parted, ...]:
    found = []
    for key, one in replicas(facts).items():
        if not one.meant:
            continue
        series = tensors.weights(facts)[key]
        other = differ(series, one.positions)
        if not len(other) or not other[-1]:
            continue
        agreed = np.flatnonzero(~other)
        first = int(agreed[-1]) + 1 if len(agreed) else 0
        after = int(series.steps[first - 1]) if first else -1
        if not first and _equal_before(series, one.positions):
            after = 0
        distance = float(gap(series, one.positions)[first:].max())
        if distance <= LAST_BITS:
            continue
        found.append(Parted(key, one.positions, after, int(series.steps[first]), distance))
    return tuple(sorted(found, key=lambda one: one.first))


def _equal_before(series: Series, positions: tuple[int, ...]) -> bool:
    """Whether it was equal before the first sampled step."""
    sizes, known = rows_of(series, positions, "rms")[:, 0], rows_of(series, positions, "compared")[:, 0]
    return bool(known.all() and (sizes == sizes[0]).all())
