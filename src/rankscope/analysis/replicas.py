"""What must be equal over ranks: parameters that a wrapper keeps equal, that are laid out as replicas, or whose
gradients the program itself reduces. What is sharded, of another shape, or trained alone on purpose is not among it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import tensors
from rankscope.analysis.facts import Facts, Mask
from rankscope.analysis.tables import Rows, column
from rankscope.analysis.tensors import Key, Series
from rankscope.records.collective import Collective
from rankscope.records.gradient_calls import Wrapping
from rankscope.records.inventory import Model, Parameter
from rankscope.records.numerics import LossValue
from rankscope.records.training import Backward, Forward

DDP: Final = "DistributedDataParallel"
NOISE: Final = 1e-4
"""Relative gap of two root mean squares that rounding can make: 256 float32 numbers differ by 1e-7 each, those of
bfloat16 by 4e-3 at random, which over 256 of them is 3e-4 / 16; gradients of other batches differ by tenths."""
SAME_NUMBER: Final = 1e-5
"""Relative difference of two ratios of root mean squares of float32 samples that are one number."""
FIRST_LOOKS: Final = 12
"""Sampled steps that tell: what each rank scales for itself, it scales from the start."""
RARELY: Final = 0.5
"""Share of the steps below which parameters of the model's size are communicated now and then: they are averaged,
not their gradients."""
MANY_ELEMENTS: Final = 0.5
"""Share of the model's elements that a step's reductions must have to be those of its parameters or gradients."""


MOST, NEARLY_ALL = 0.5, 0.9
"""Share of a model's parameters, by number and by size, that are reduced where one with an equal start should be too;
the second where layers are split over the ranks, most of which are not reduced then."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """How a model is wrapped, as it was seen on the sampled steps."""

    model: str
    members: tuple[int, ...]
    """Rank numbers of the process group in which its gradients are reduced; empty: not known."""
    rows: tuple[Rows, ...]
    """[r] `Wrapping` records of each rank."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A parameter that must be equal on some ranks."""

    key: Key
    positions: tuple[int, ...]
    wrapped: bool
    """A DistributedDataParallel is there to keep it equal."""
    meant: bool
    """Its own gradient was seen reduced, or a wrapper has it; else only those of its model's other parameters were."""


def communicates(facts: Facts) -> bool:
    """Whether the ranks of the job talk to one another at all; ranks of a sweep do not."""
    return facts.size > 1 and bool(len(facts.tables.of(Collective)))


def wrappers(facts: Facts) -> dict[str, Wrapped]:
    """Model -> how a DistributedDataParallel wraps it."""
    return facts.once(_wrappers)


def replicas(facts: Facts) -> dict[Key, Replica]:
    """The parameters that must be equal, with the ranks on which they must; none where nothing says so."""
    return facts.once(_replicas)


def differ(series: Series, positions: tuple[int, ...]) -> Mask:
    """[k] whether a tensor is another one on some of these ranks."""
    prints = rows_of(series, positions, "fingerprint")
    return np.asarray((prints != prints[:1]).any(axis=0))


def gap(series: Series, positions: tuple[int, ...]) -> NDArray[np.float64]:
    """[k] relative distance of the smallest from the largest root mean square."""
    sizes = rows_of(series, positions, "rms")
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (sizes.max(axis=0) - sizes.min(axis=0)) / np.where(sizes.max(axis=0) > 0, sizes.max(axis=0), 1.0)
    return np.nan_to_num(np.asarray(found, np.float64), nan=1.0)


def apart(series: Series, positions: tuple[int, ...]) -> Mask:
    """[k] whether a tensor is another one on some of these ranks by more than rounding."""
    return np.asarray(differ(series, positions) & (gap(series, positions) > NOISE))


def rows_of(series: Series, positions: tuple[int, ...], field: str) -> NDArray[np.float64]:
    """[r, k] one field of some ranks."""
    return np.asarray(series[field][[series.positions.index(p) for p in positions]])


def averages_parameters(facts: Facts) -> bool:
    """Whether something of the model's size is reduced outside of backward on a few of the steps: parameters are
    averaged now and then (local SGD, federated averaging), so that ranks may differ in between."""
    return facts.once(_averages_parameters)


def reduced_in_backward(facts: Facts, position: int) -> dict[int, int]:
    """Step -> elements that were reduced while backward ran."""
    return facts.once(_reduced_in_backward, position)


def reduced_by_hand(facts: Facts, position: int, *, gradients: bool = False) -> dict[int, int]:
    """Step -> elements that were reduced outside of backward and of the model's forward; `gradients`: only what came
    after the step's first backward, before the optimizer ends the step."""
    return facts.once(_reduced_by_hand, position, int(gradients))


def splits_layers(facts: Facts) -> bool:
    """Whether the model communicates inside of its forward: layers are split over ranks (tensor or expert parallel).
    Buffers that are broadcast are none, nor what SyncBatchNorm exchanges."""
    return facts.once(_splits_layers)


def sends(facts: Facts) -> bool:
    """Whether ranks send to one another: stages of a pipeline."""
    return bool(column(facts.tables.of(Collective), Collective, "point_to_point").any())


def trained_elements(facts: Facts, position: int) -> int:
    """Elements of all parameters that are trained."""
    return sum(_elements(p) for _, p in tensors.parameters(facts, position) if p.trainable)


# -- what must be equal ----------------------------------------------------------------------------------------


def _replicas(facts: Facts) -> dict[Key, Replica]:
    if not communicates(facts) or averages_parameters(facts):
        return {}
    known = [{(m.name, p.path): (m, p) for m, p in tensors.parameters(facts, i)} for i in range(facts.size)]
    found: dict[Key, Replica] = {}
    for key, series in tensors.weights(facts).items():
        positions = tuple(p for p in series.positions if key in known[p])
        if len(positions) < 2 or not len(series.steps) or not any(known[p][key][1].trainable for p in positions):
            continue
        shapes = {known[p][key][1].shape for p in positions}
        layouts = {known[p][key][1].placement for p in positions}
        if len(shapes) > 1 or any("Shard" in x or "Partial" in x for x in layouts):
            continue
        wrapped = _members(facts, known[positions[0]][key][0], positions)
        if wrapped is not None:
            # One rank by itself: a mistake, or its peers hold other parts of the model (tensor, pipeline parallel).
            alone = len(wrapped) < 2 and not splits_layers(facts) and not sends(facts)
            if len(wrapped) > 1 or (alone and _started_equal(series, positions)):
                found[key] = Replica(key, positions if alone else wrapped, True, True)
        elif _reduced(facts, key, positions) or key in _scaled_by_rank(facts):
            found[key] = Replica(key, positions, False, True)
        elif _started_equal(series, positions):
            found[key] = Replica(key, positions, False, splits_layers(facts) and _computed_equal(facts, key, positions))
    return dict(_supported(facts, found))


def _supported(facts: Facts, found: dict[Key, Replica]) -> Iterator[tuple[Key, Replica]]:
    """Without those of which nothing but an equal start speaks, where their model's others are not reduced either."""
    split = splits_layers(facts)
    size = {(m.name, p.path): _elements(p) for m, p in tensors.parameters(facts, 0)}
    for key, one in found.items():
        others = [r for k, r in found.items() if k[0] == key[0] and not r.wrapped]
        reduced = [r for r in others if r.meant]
        # Layers that are split have the same start where all ranks have the same seed, and are the larger part.
        needed = NEARLY_ALL if split else MOST
        most = len(reduced) > needed * len(others) and _sum(size, reduced) > needed * _sum(size, others)
        if one.meant or most:
            yield key, one


def _sum(size: Mapping[Key, int], some: Iterable[Replica]) -> int:
    return sum(size.get(one.key, 0) for one in some)


def _members(facts: Facts, model: Model, positions: tuple[int, ...]) -> tuple[int, ...] | None:
    """Positions on which a wrapper keeps a model equal; None where there is no wrapper, or it was told to ignore some
    parameters."""
    wrapped = wrappers(facts).get(model.name)
    if wrapped is None:
        return positions if model.wrapper == DDP else None
    if any(column(rows, Wrapping, "ignored").any() for rows in wrapped.rows):
        return None
    return tuple(p for p in positions if facts.ranks[p].rank in wrapped.members)


def _reduced(facts: Facts, key: Key, positions: tuple[int, ...]) -> bool:
    """Whether its gradient was equal on all ranks when the optimizer got it, though backward left different ones."""
    final, raw = tensors.gradients(facts).get(key), tensors.raw_gradients(facts).get(key)
    if final is None or set(positions) - set(final.positions):
        return False
    equal = ~differ(final, positions) & (rows_of(final, positions, "rms").max(axis=0) > 0)
    if raw is None or set(positions) - set(raw.positions):
        return False
    common = np.isin(raw.steps, final.steps[equal])
    reduced = apart(raw, positions)[common]
    # Equal after backward already: by a hook that reduces, or because ranks got the same batch.
    return bool(reduced.any()) or bool(equal.any() and losses_differ(facts))


def _computed_equal(facts: Facts, key: Key, positions: tuple[int, ...]) -> bool:
    """Whether backward left the same gradient on all ranks before the first update: of layers that are split over the
    ranks, the parts between are replicas."""
    raw = tensors.raw_gradients(facts).get(key)
    if raw is None or set(positions) - set(raw.positions) or not len(raw.steps):
        return False
    return bool(not differ(raw, positions)[0] and rows_of(raw, positions, "rms")[:, 0].max() > 0)


def _scaled_by_rank(facts: Facts) -> frozenset[Key]:
    """Parameters whose gradients on one rank are by one and the same number larger than on another, at least two of
    them on at least two steps: they were equal, and each rank then scaled its own."""
    return facts.once(_find_scaled_by_rank)


def _find_scaled_by_rank(facts: Facts) -> frozenset[Key]:
    seen: dict[tuple[Key, Key], set[int]] = {}
    finals = [(k, s) for k, s in tensors.gradients(facts).items() if len(s.positions) == facts.size]
    for step in sorted({int(x) for _, s in finals for x in s.steps})[:FIRST_LOOKS]:
        ratios = []
        for key, series in finals:
            sizes = series["rms"][:, series.steps == step]
            if sizes.shape[1] and (sizes > 0).all() and np.isfinite(sizes).all():
                ratios.append((float(sizes[1, 0] / sizes[0, 0]), key))
        ratios.sort()
        for (low, one), (high, other) in pairwise(ratios):
            if high / low - 1 <= SAME_NUMBER and abs(low - 1) > NOISE:
                seen.setdefault((one, other) if one < other else (other, one), set()).add(step)
    return frozenset(key for pair, steps in seen.items() if len(steps) > 1 for key in pair)


def losses_differ(facts: Facts) -> bool:
    """Whether ranks ever called backward on different values: they train on different data."""
    return facts.once(_losses_differ)


def _losses_differ(facts: Facts) -> bool:
    found: list[dict[tuple[int, int], float]] = []
    for position in range(facts.size):
        rows = facts.rows(LossValue, position, window=False)
        calls = zip(rows["step"].tolist(), column(rows, LossValue, "micro_batch").tolist(), strict=True)
        found.append(dict(zip(calls, column(rows, LossValue, "value").tolist(), strict=True)))
    common = set.intersection(*(set(one) for one in found)) if found else set()
    return any(len({one[call] for one in found}) > 1 for call in common)


def _started_equal(series: Series, positions: tuple[int, ...]) -> bool:
    sizes = rows_of(series, positions, "rms")[:, 0]
    known = rows_of(series, positions, "compared")[:, 0]
    return bool(known.all() and (sizes == sizes[0]).all())


# -- wrappers and communication --------------------------------------------------------------------------------


def _wrappers(facts: Facts) -> dict[str, Wrapped]:
    by_model: dict[str, list[Rows]] = {}
    members: dict[str, set[int]] = {}
    for position in range(facts.size):
        rows = facts.rows(Wrapping, position, window=False)
        pid = facts.ranks[position].pid
        for id in np.unique(rows["name"]).tolist():
            mine = rows[rows["name"] == id]
            model = facts.tables.name(pid, id)
            by_model.setdefault(model, []).append(mine)
            text = facts.tables.name(pid, int(column(mine, Wrapping, "members")[-1]))
            members.setdefault(model, set()).update(int(x) for x in text.split(",") if x.isdigit())
    found = {}
    for model, all_rows in by_model.items():
        first = all_rows[0]
        text = facts.tables.name(int(first["process"][0]), int(column(first, Wrapping, "members")[-1]))
        own = tuple(int(x) for x in text.split(",") if x.isdigit())
        # Ranks that each have a group of their own: nobody's group holds two.
        found[model] = Wrapped(model, own if len(own) == 1 else tuple(sorted(members[model])), tuple(all_rows))
    return found


def _averages_parameters(facts: Facts) -> bool:
    needed = MANY_ELEMENTS * trained_elements(facts, 0)
    if not needed:
        return False
    by_hand = reduced_by_hand(facts, 0)
    steps = max(1, facts.step_count(0))
    # The first step and what is before it belong to the start, where replicas are made equal.
    large = [step for step, elements in by_hand.items() if step > 0 and elements >= needed]
    return bool(large) and len(large) <= RARELY * steps and not _mostly(facts, needed)


def _mostly(facts: Facts, needed: float) -> bool:
    """Whether gradients are reduced in most steps anyway."""
    large = [step for step, elements in reduced_in_backward(facts, 0).items() if elements >= needed]
    return len(large) > RARELY * max(1, facts.step_count(0))


def _splits_layers(facts: Facts) -> bool:
    for position in range(facts.size):
        stock = tensors.inventory(facts, position)
        kinds = {m.kind for model in (stock.models if stock is not None else ()) for m in model.modules}
        if "SyncBatchNorm" in kinds:
            continue
        rows = facts.rows(Collective, position, window=False)
        rows = rows[column(rows, Collective, "in_backward") == 0]
        inside = rows[_in_forward(facts, position, rows)]
        names = {facts.tables.name(facts.ranks[position].pid, int(n)) for n in np.unique(inside["name"])}
        if any(not name.startswith("broadcast") for name in names):
            return True
    return False


def _in_forward(facts: Facts, position: int, rows: Rows) -> Mask:
    """Which of these began inside of a forward with gradients."""
    forwards = facts.rows(Forward, position, window=False)
    forwards = forwards[column(forwards, Forward, "grad") == 1] if len(forwards) else forwards
    if not len(forwards) or not len(rows):
        return np.zeros(len(rows), bool)
    at = np.searchsorted(forwards["time_ns"], rows["time_ns"], side="right") - 1
    ends = forwards["time_ns"] + forwards["duration_ns"]
    return np.asarray((at >= 0) & (rows["time_ns"] < ends[np.maximum(at, 0)]))


def _reduced_in_backward(facts: Facts, position: int) -> dict[int, int]:
    rows = facts.rows(Collective, position, window=False)
    return _by_step(rows[column(rows, Collective, "in_backward") == 1])


def _reduced_by_hand(facts: Facts, position: int, gradients: int) -> dict[int, int]:
    rows = facts.rows(Collective, position, window=False)
    rows = rows[column(rows, Collective, "in_backward") == 0]
    ids, inverse = np.unique(rows["name"], return_inverse=True)
    names = [facts.tables.name(facts.ranks[position].pid, int(id)) for id in ids]
    summed = np.array([n.startswith(("allreduce", "all_reduce", "reduce_scatter")) for n in names], bool)
    rows = rows[summed[inverse]] if len(rows) else rows
    rows = rows[~_in_forward(facts, position, rows)]
    if gradients and len(rows):
        backwards = facts.rows(Backward, position, window=False)
        steps, first = np.unique(backwards["step"], return_index=True)
        at = np.minimum(np.searchsorted(steps, rows["step"]), max(0, len(steps) - 1))
        same = (steps[at] == rows["step"]) if len(steps) else np.zeros(len(rows), bool)
        rows = rows[same]
        rows = rows[rows["time_ns"] >= backwards["time_ns"][first][at[same]]]
    return _by_step(rows)


def _by_step(rows: Rows) -> dict[int, int]:
    steps, inverse = np.unique(rows["step"], return_inverse=True)
    sums = np.bincount(inverse, weights=column(rows, Collective, "elements"), minlength=len(steps))
    return {int(step): int(n) for step, n in zip(steps.tolist(), sums.tolist(), strict=True)}


def _elements(parameter: Parameter) -> int:
    return int(np.prod(parameter.shape)) if parameter.shape else 1
