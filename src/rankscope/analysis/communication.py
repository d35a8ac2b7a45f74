"""Communication of one rank: calls of the user's, gradient reductions, transfers, and code that serves it."""

from __future__ import annotations

from collections import Counter as Counted
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import timeline
from rankscope.analysis.facts import Facts, Floats, Mask
from rankscope.analysis.hot_code import hot_place, samples_in, states
from rankscope.analysis.lateness import lateness
from rankscope.analysis.rank_correlation import rank_correlation
from rankscope.analysis.sample_state import BLOCKED
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import Rows, column
from rankscope.records.collective import Collective
from rankscope.records.training import Backward, OptimizerStep

SMALL_BYTES = 4096
"""A message of this size takes as long as one of one byte: latency alone (a packet or two)."""
FEWEST_READINGS = 8
"""Readings of the send queues (two a second) below which the share of full ones is a matter of chance."""
BULK_BYTES = 16_384
"""Less than this in a send queue is on its way: a few packets and their acknowledgements."""
ONE_LINE = 0.9
"""Share of the backward calls that must come from one line to be the micro-batches of one model; two models that step
in turn have half each."""
SAME_BUCKETS = 0.5
"""Share of a step's usual reductions that a micro-batch must have to reduce as a step does: DDP builds its buckets anew
after its first backward."""
REDUCED_EARLY = 0.8
"""Share of the micro-batches before the last that must reduce: with no_sync none does, without it all do of which no
record was lost."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Some collectives of one rank and the time they take."""

    rows: Rows
    segments: Mask
    """Segments of the calls, of the waits for them, and of user code around them that serves communication."""


def user_calls(facts: Facts, position: int, most_bytes: int) -> Calls:
    """Collectives of the window called outside of backward with at most so many bytes."""
    own = facts.timelines[position]
    rows = own.collectives
    small = (rows["b"] <= most_bytes) & (column(rows, Collective, "in_backward") == 0)
    segments = own.segments
    of = segments["collective"].astype(np.int64)
    waits = (of >= 0) & small[np.maximum(of, 0)] if len(rows) else np.zeros(len(segments), bool)
    around = (segments["kind"] == 0) & (facts.phases(position) == timeline.COMMUNICATION)
    mask = facts.in_window(position) & (waits | around)
    inside = (rows["time_ns"] >= facts.begin) & (rows["time_ns"] < facts.end)
    return Calls(rows[small & inside], np.asarray(mask, bool))


def main_site(facts: Facts, position: int, rows: Rows) -> tuple[Place | None, float]:
    """The line from which most of these collectives are called, and its share of them."""
    rows = rows[column(rows, Collective, "site") > 0]
    if not len(rows):
        return None, 0.0
    sites, counts = np.unique(column(rows, Collective, "site"), return_counts=True)
    best = int(np.argmax(counts))
    return facts.place(position, int(sites[best])), float(counts[best] / counts.sum())


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Gradient accumulation of one rank, reduced at every micro-batch."""

    micro_batches: int
    """In a step."""
    reductions: int
    """Gradient reductions in a step."""
    needless: Mask
    """Segments of reductions before the last micro-batch of a step."""
    place: Place | None


def accumulation(facts: Facts, position: int) -> Accumulation | None:
    """How an accumulating rank reduces gradients at every micro-batch; None where it does not.

    The backward calls of a step must come from one line and each be followed (or accompanied) by the same reductions.
    """
    own = facts.timelines[position]
    backwards = facts.rows(Backward, position)
    optimizers = facts.rows(OptimizerStep, position)
    if not len(backwards) or not len(optimizers):
        return None
    sites = Counted(backwards["name"].tolist())
    site, most = sites.most_common(1)[0]
    if most < ONE_LINE * len(backwards):
        return None  # from several lines: several models, each of which reduces its own gradients
    step_of = backwards["step"].astype(np.int64)
    counts = np.unique(step_of, return_counts=True)[1]
    micro = int(np.median(counts))
    if micro < 2:
        return None
    # What belongs to a micro-batch: from the start of its backward to the start of the next one (or the optimizer).
    starts = backwards["time_ns"].astype(np.int64)
    ends = np.append(starts[1:], facts.end)
    step_starts = optimizers["time_ns"].astype(np.int64)
    after = np.searchsorted(step_starts, starts)
    limit = np.where(after < len(step_starts), step_starts[np.minimum(after, len(step_starts) - 1)], facts.end)
    ends = np.minimum(ends, limit)
    calls = own.collectives
    call_times = calls["time_ns"].astype(np.int64)
    signatures = []
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        low, high = np.searchsorted(call_times, (begin, end))
        signatures.append(tuple(sorted(b for b in calls["b"][low:high].tolist() if b > 0)))
    is_last = np.append(step_of[1:] != step_of[:-1], True)
    reduced = [s for s, last in zip(signatures, is_last.tolist(), strict=True) if last and s]
    if not reduced:
        return None
    usual = set(Counted(reduced).most_common(1)[0][0])
    early = [bool(s) and len(set(s) & usual) >= SAME_BUCKETS * len(usual) for s in signatures]
    wrong = np.array(early) & ~is_last
    if wrong.sum() < REDUCED_EARLY * (~is_last).sum():
        return None  # most micro-batches skip the reduction, as they should
    segments = own.segments
    middle = segments["start"].astype(np.int64)
    at = np.searchsorted(starts, middle, side="right") - 1
    inside = (at >= 0) & (middle < ends[np.maximum(at, 0)]) & wrong[np.maximum(at, 0)]
    serving = (segments["collective"] >= 0) | (facts.phases(position) == timeline.COMMUNICATION)
    mask = np.asarray(inside & serving & facts.in_window(position), bool)
    reductions = int(np.median([len(s) for s, last in zip(signatures, is_last.tolist(), strict=True) if last])) * micro
    return Accumulation(micro, reductions, mask, facts.place(position, int(site)))


def own_segments(facts: Facts, position: int) -> Mask:
    """Segments in which a rank itself communicates: hooks and code that serve it, and what it waits for."""
    mask = facts.in_window(position) & (facts.phases(position) == timeline.COMMUNICATION)
    return np.asarray(mask, bool)


def transfers(facts: Facts, position: int) -> Mask:
    """Segments that wait for a collective; the replay keeps of them the transfer alone."""
    return np.asarray(facts.in_window(position) & (facts.timelines[position].segments["collective"] >= 0), bool)


def own_time_per_step(facts: Facts, position: int) -> Floats:
    """Per step, the time in ns of a rank in communication that is not waiting for a rank that comes later."""
    mask = own_segments(facts, position)
    times = facts.per_step(position, mask)
    return times - facts.per_step_of(position, mask, _waiting_ns(facts, position))


def _waiting_ns(facts: Facts, position: int) -> Floats:
    """For each segment, how many ns of it passed before the last rank had entered its collective."""
    own = facts.timelines[position]
    segments = own.segments
    of = segments["collective"].astype(np.int64)
    if not len(own.collectives):
        return np.zeros(len(segments))
    last = facts.matches.last_enter[position][np.maximum(of, 0)]
    known = (of >= 0) & (facts.matches.last_rank[position][np.maximum(of, 0)] >= 0)
    waited = np.clip(last - segments["start"], 0, segments["end"] - segments["start"])
    return np.where(known, waited, 0).astype(np.float64)


def transfer_ns(facts: Facts, position: int) -> float:
    """Mean transfer time of a rank in a step, in ns."""
    mask = transfers(facts, position)
    times = facts.per_step(position, mask) - facts.per_step_of(position, mask, _waiting_ns(facts, position))
    return float(times.mean()) if len(times) else 0.0


def latency_ns(facts: Facts) -> float | None:
    """What a transfer takes at least, in ns: the fifth percentile over those of small messages; None without any."""
    found = []
    for p in range(facts.size):
        own = facts.timelines[p]
        if not len(own.collectives):
            continue
        of = np.maximum(own.segments["collective"].astype(np.int64), 0)
        mask = transfers(facts, p) & (own.collectives["b"][of] <= SMALL_BYTES)
        found.append((own.durations() - _waiting_ns(facts, p))[mask])
    everything = np.concatenate(found) if found else np.empty(0)
    everything = everything[everything > 0]
    return float(np.percentile(everything, 5)) if len(everything) else None


def small_share(facts: Facts) -> float:
    """Share of the transfer time of all ranks that went into small messages."""
    small = whole = 0.0
    for p in range(facts.size):
        own = facts.timelines[p]
        if not len(own.collectives):
            continue
        of = np.maximum(own.segments["collective"].astype(np.int64), 0)
        lengths = own.durations() - _waiting_ns(facts, p)
        mask = transfers(facts, p)
        whole += float(lengths[mask].sum())
        small += float(lengths[mask & (own.collectives["b"][of] <= SMALL_BYTES)].sum())
    return small / whole if whole else 0.0


def calls_per_step(facts: Facts) -> float:
    """Collectives of one rank in a step."""
    return len(facts.rows(Collective, 0)) / max(1, len(facts.steps))


def bytes_per_step(facts: Facts) -> float:
    """Bytes that one rank gives into collectives in a step."""
    return float(facts.rows(Collective, 0)["b"].sum()) / max(1, len(facts.steps))


def computes_in_communication(facts: Facts, position: int) -> bool:
    """Whether the rank uses a CPU during communication of its own instead of waiting: then it is code, not the link."""
    own = facts.timelines[position]
    mask = own_segments(facts, position) & (own.segments["collective"] < 0)
    indices = samples_in(facts, position, np.asarray(mask, bool))
    if len(indices) < 4:
        return False
    state = states(facts, position).state[indices]
    return float((state != BLOCKED).mean()) > 0.5


def hot_place_of_link(facts: Facts, position: int) -> Place | None:
    """Where the stack samples find the rank during communication of its own."""
    own = facts.timelines[position]
    mask = own_segments(facts, position) & (own.segments["collective"] < 0)
    hot = hot_place(facts, position, samples_in(facts, position, np.asarray(mask, bool)))
    return hot.place if hot is not None else None


def grows_with_bytes(facts: Facts, position: int) -> float | None:
    """Rank correlation over steps of communication time with bytes; None where the bytes do not vary."""
    rows = facts.rows(Collective, position)
    index = rows["step"].astype(np.int64) - int(facts.steps[0])
    good = (index >= 0) & (index < len(facts.steps))
    size = np.bincount(index[good], rows["b"][good].astype(float), minlength=len(facts.steps))[: len(facts.steps)]
    # With less variation than this, noise would decide the order.
    if np.std(size) < 0.05 * max(1.0, float(np.mean(size))):
        return None
    time = own_time_per_step(facts, position)
    return rank_correlation(size.astype(np.float64), time)


def compute_ratio(facts: Facts, position: int) -> float:
    """Compute time of a rank over the median of the others."""
    medians = np.median(lateness(facts).compute, axis=1)
    others = float(np.median(np.delete(medians, position)))
    return float(medians[position]) / others if others else 1.0


def send_queue_share(facts: Facts) -> list[float | None]:
    """For each rank the share of readings that found bytes waiting to be sent; None with too few readings.

    Only while no other rank had bytes waiting to be read: a peer that does not get to reading holds up the sender, too.
    """
    unsent = [facts.counter("send_queue_bytes", rank.pid) for rank in facts.ranks]
    unread = [facts.counter("receive_queue_bytes", rank.pid) for rank in facts.ranks]
    behind = [dict(zip(s.time_ns.tolist(), s.value.tolist(), strict=True)) for s in unread]
    shares: list[float | None] = []
    for position, series in enumerate(unsent):
        stuck = []
        for time, value in zip(series.time_ns.tolist(), series.value.tolist(), strict=True):
            if facts.begin <= time <= facts.end:
                others = max((b.get(time, 0) for p, b in enumerate(behind) if p != position), default=0)
                stuck.append(value > BULK_BYTES and others <= BULK_BYTES)
        shares.append(float(np.mean(stuck)) if len(stuck) >= FEWEST_READINGS else None)
    return shares


def transfer_lengths(facts: Facts) -> tuple[float, float]:
    """(shortest, mean) length of the run's transfers in ns, over all waits of all ranks.

    The shortest is the fifth percentile; (0, 0) where nothing was transferred.
    """
    found = [(facts.timelines[p].durations() - _waiting_ns(facts, p))[transfers(facts, p)] for p in range(facts.size)]
    everything = np.concatenate(found)
    some = everything[everything > 0]
    return (float(np.percentile(some, 5)), float(everything.mean())) if len(some) else (0.0, 0.0)
