"""How far the clocks of two nodes can be apart, proven by the collectives that both took part in.

Nobody leaves a blocking collective before the last one has entered it. With clocks a and b, and b's reading written
as `t + offset + drift * t` at a's reading t, each matched collective gives

    offset + drift * enter_a <= leave_b - enter_a      and      offset + drift * leave_a >= enter_b - leave_a

Only the lower hull of the first points and the upper hull of the second ones matter; every line between the hulls is
possible, and so is every offset that such a line takes at a moment (Duda et al., "Estimating global time in
distributed systems", ICDCS 1987).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import ceil, floor, inf

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW = 64
"""Points of which the hull is found one by one sooner than all at once."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Calls of blocking collectives, one entry a rank and call; all arrays of one length."""

    call: Ints
    """The same number for the same collective on every rank."""
    clock: Ints
    """Whose clock the times are of."""
    enter_ns: Ints
    leave_ns: Ints


@dataclass(frozen=True, slots=True)
class PairBounds:
    """What is proven of clock `b` minus clock `a`, as a function of the time on `a`."""

    a: int
    b: int
    first_ns: int
    """First and last moment on `a` that was observed; beyond them the interval widens."""
    last_ns: int
    upper: tuple[Floats, Floats]
    """Lower hull of the upper constraints: times and offsets, relative to `first_ns` and `base_ns`."""
    lower: tuple[Floats, Floats]
    base_ns: int

    def at(self, time_ns: int) -> tuple[float, float]:
        """The least and the greatest possible offset at a moment of `a`.

        The least is above the greatest where no constant drift explains what was seen.
        """
        t = float(time_ns - self.first_ns)
        high = _greatest(t, self.upper, self.lower)
        low = -_greatest(t, _negated(self.lower), _negated(self.upper))
        # Whole nanoseconds, rounded outwards, so that a long uptime costs no precision.
        return (
            self.base_ns + floor(low) if low > -inf else low,
            self.base_ns + ceil(high) if high < inf else high,
        )

    @property
    def possible(self) -> bool:
        """False where the constraints contradict each other: a clock was set or its drift changed."""
        return all(low <= high for low, high in map(self.at, self._knots()))

    @property
    def max_error_us(self) -> float:
        """Half of the widest interval in the observed time; infinite where nothing is proven."""
        if not self.possible:
            return inf
        # The upper bound is convex and the lower one concave: the width is greatest at an end.
        return max((high - low) / 2_000 for low, high in map(self.at, (self.first_ns, self.last_ns)))

    @property
    def most_apart_us(self) -> float:
        """How far readings at one moment of the observed time may differ; infinite where that is not proven."""
        if not self.possible:
            return inf
        ends = map(self.at, (self.first_ns, self.last_ns))
        return max(max(abs(low), abs(high)) / 1_000 for low, high in ends)

    def _knots(self) -> list[int]:
        times = np.concatenate([self.upper[0], self.lower[0]])
        return [self.first_ns + int(time) for time in times]


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """All pairs of clocks that took part in a collective together."""

    clocks: tuple[int, ...]
    pairs: dict[tuple[int, int], PairBounds]

    @property
    def max_error_us(self) -> float:
        """The error that no time stamp of one clock, converted to another one, exceeds; 0 for a single clock."""
        return max((pair.max_error_us if pair is not None else inf for pair in self._all_pairs()), default=0.0)

    @property
    def most_apart_us(self) -> float:
        """The error that no time stamp exceeds where those of all clocks are taken as they are; 0 for a single one."""
        return max((pair.most_apart_us if pair is not None else inf for pair in self._all_pairs()), default=0.0)

    def _all_pairs(self) -> list[PairBounds | None]:
        return [self.pairs.get(pair) for pair in combinations(self.clocks, 2)]


def clock_bounds(matched: Matched) -> ClockBounds:
    """What the matched collectives prove of every pair of clocks.

    Ranks that share a clock count as one: the last of them to enter and the first of them to leave say the most.
    Non-blocking calls must not be among them: they may leave before anybody has entered.
    """
    calls = _by_clock(matched)
    clocks = tuple(int(clock) for clock in np.unique(calls.clock))
    of = {clock: _only(calls, clock) for clock in clocks}
    pairs = {}
    for a, b in combinations(clocks, 2):
        ours, theirs = _shared(of[a], of[b])
        if len(ours.enter_ns):
            pairs[a, b] = _pair(a, b, ours, theirs)
    return ClockBounds(clocks, pairs)


def _by_clock(matched: Matched) -> Matched:
    if not len(matched.call):
        return matched
    order = np.lexsort((matched.call, matched.clock))
    call, clock = matched.call[order], matched.clock[order]
    first = np.flatnonzero(np.append(True, (call[1:] != call[:-1]) | (clock[1:] != clock[:-1])))
    enter = np.maximum.reduceat(matched.enter_ns[order], first)
    leave = np.minimum.reduceat(matched.leave_ns[order], first)
    return Matched(call[first], clock[first], enter, leave)


def _only(calls: Matched, clock: int) -> Matched:
    return _take(calls, np.flatnonzero(calls.clock == clock))


def _take(calls: Matched, rows: NDArray[np.intp]) -> Matched:
    return Matched(calls.call[rows], calls.clock[rows], calls.enter_ns[rows], calls.leave_ns[rows])


def _shared(a: Matched, b: Matched) -> tuple[Matched, Matched]:
    _, ours, theirs = np.intersect1d(a.call, b.call, assume_unique=True, return_indices=True)
    return _take(a, ours), _take(b, theirs)


def _pair(a: int, b: int, ours: Matched, theirs: Matched) -> PairBounds:
    # Integers until the zeros are moved: a double has no room for the nanoseconds of a long uptime.
    first = int(min(ours.enter_ns.min(), ours.leave_ns.min()))
    base = int(theirs.enter_ns[0] - ours.enter_ns[0])
    upper = ((ours.enter_ns - first).astype(float), (theirs.leave_ns - ours.enter_ns - base).astype(float))
    lower = ((ours.leave_ns - first).astype(float), (theirs.enter_ns - ours.leave_ns - base).astype(float))
    return PairBounds(
        a,
        b,
        first_ns=first,
        last_ns=int(max(ours.enter_ns.max(), ours.leave_ns.max())),
        upper=_lower_hull(*upper),
        lower=_negated(_lower_hull(*_negated(lower))),
        base_ns=base,
    )


def _negated(points: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return points[0], -points[1]


def _lower_hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The lower convex hull of points, by rising x (Andrew's monotone chain)."""
    hull: list[tuple[float, float]] = []
    for px, py in zip(*(part.tolist() for part in _near_hull(x, y)), strict=True):
        if hull and hull[-1][0] == px:
            continue
        while len(hull) > 1 and _turns_right(hull[-2], hull[-1], (px, py)):
            hull.pop()
        hull.append((px, py))
    points = np.array(hull, dtype=float).reshape(-1, 2)
    return points[:, 0], points[:, 1]


def _near_hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Points by rising x, without most of those that lie above the line between two others: they are many."""
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    left = len(x) + 1
    while len(x) < left and len(x) > FEW:
        left = len(x)
        above = (x[1:-1] - x[:-2]) * (y[2:] - y[:-2]) < (y[1:-1] - y[:-2]) * (x[2:] - x[:-2])
        keep = np.concatenate([[True], ~above, [True]])
        x, y = x[keep], y[keep]
    return x, y


def _turns_right(o: tuple[float, float], p: tuple[float, float], q: tuple[float, float]) -> bool:
    return (p[0] - o[0]) * (q[1] - o[1]) <= (p[1] - o[1]) * (q[0] - o[0])


def _greatest(t: float, upper: tuple[Floats, Floats], lower: tuple[Floats, Floats]) -> float:
    """The greatest value at `t` of a line below all upper and above all lower points.

    It is bounded by two upper points around `t`, or by an upper point between `t` and a lower one.
    """
    ux, uy = upper
    bound = float(np.interp(t, ux, uy)) if ux[0] <= t <= ux[-1] else inf
    lx, ly = lower[0][:, None], lower[1][:, None]
    between = ((lx < ux) & (ux <= t)) | ((t <= ux) & (ux < lx))
    if between.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            lines = ly + (uy - ly) * ((t - lx) / (ux - lx))
        bound = min(bound, float(lines[between].min()))
    return bound
