"""What collectives prove of clocks: exact intervals for made-up offsets and drifts."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analysis import clock_bounds as clock_bounds_module
from rankscope.analysis.clock_bounds import Matched, clock_bounds


def matched(*calls):
    """Of tuples (call, clock, enter_ns, leave_ns)."""
    return Matched(*np.array(calls, dtype=np.int64).reshape(-1, 4).T)


def test_one_collective_bounds_the_offset_by_who_waited():
    # Clock 1 is 1,000,000 ns ahead. In true time: 0 enters at 100, 1 enters at 150, both leave at 180.
    bounds = clock_bounds(matched((0, 0, 100, 180), (0, 1, 1_000_150, 1_000_180)))

    assert bounds.pairs[0, 1].at(180) == (999_970, inf)
    assert bounds.pairs[0, 1].at(100) == (-inf, 1_000_080)


def test_two_collectives_at_one_drift_close_the_interval():
    # Clock 1 is 5,000 ns ahead, no drift. Rank 1 comes last to call 0, rank 0 comes last to call 1.
    bounds = clock_bounds(
        matched(
            *((0, 0, 0, 110), (0, 1, 5_100, 5_110)),
            *((1, 0, 1_000, 1_010), (1, 1, 5_900, 6_010)),
            *((2, 0, 2_000, 2_110), (2, 1, 7_100, 7_110)),
        )
    )

    # At 1,000: call 1 says at most leave - enter = 6,010 - 1,000; calls 0 and 2 say at least 5,100 - 110 = 4,990.
    assert bounds.pairs[0, 1].at(1_000) == (4_990, 5_010)


def test_a_single_clock_has_no_error_and_none_without_calls():
    assert clock_bounds(matched((0, 0, 1, 2), (1, 0, 3, 4))).max_error_us == 0.0
    assert clock_bounds(matched()).max_error_us == 0.0


def test_clocks_that_share_no_collective_are_not_compared():
    bounds = clock_bounds(matched((0, 0, 1, 2), (1, 1, 3, 4)))

    assert bounds.pairs == {}
    assert bounds.max_error_us == inf


def test_ranks_on_one_clock_count_as_the_last_to_enter_and_the_first_to_leave():
    two_ranks_a_node = clock_bounds(matched((0, 0, 10, 90), (0, 0, 50, 70), (0, 1, 55, 80), (0, 1, 30, 75)))
    their_tightest = clock_bounds(matched((0, 0, 50, 70), (0, 1, 55, 75)))

    assert two_ranks_a_node.pairs[0, 1].at(60) == their_tightest.pairs[0, 1].at(60)
    assert two_ranks_a_node.pairs[0, 1].at(50) == (-inf, 25)


def test_a_clock_that_was_set_is_noticed():
    calm = [(n, 0, 1_000 * n, 1_000 * n + 10) for n in range(20)]
    stepped = [(n, 1, e + (0 if n < 10 else 500), v + (0 if n < 10 else 500)) for n, _, e, v in calm]

    bounds = clock_bounds(matched(*calm, *stepped))

    assert not bounds.pairs[0, 1].possible
    assert bounds.max_error_us == inf


def simulate(offset, drift, *, calls=200, seed=0, start=0):
    """Two clocks and blocking collectives: arrivals up to 1 ms apart, 2 to 20 µs from the last arrival to a return."""
    random = np.random.default_rng(seed)
    true = start + np.arange(calls) * 10_000_000
    enter = true[None, :] + random.integers(0, 1_000_000, (2, calls))
    leave = enter.max(axis=0)[None, :] + random.integers(2_000, 20_000, (2, calls))

    def reading_of_1(t):
        return t + offset + np.rint(drift * (t - start)).astype(np.int64)

    columns = (
        np.tile(np.arange(calls), 2),
        np.repeat([0, 1], calls),
        np.concatenate([enter[0], reading_of_1(enter[1])]),
        np.concatenate([leave[0], reading_of_1(leave[1])]),
    )
    return Matched(*columns), lambda t: offset + drift * (t - start)


@given(st.integers(-(10**12), 10**12), st.integers(-200, 200), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_the_true_offset_is_always_inside(offset, drift_ppm, seed):
    calls, true_offset = simulate(offset, drift_ppm * 1e-6, seed=seed, calls=50)

    pair = clock_bounds(calls).pairs[0, 1]

    assert pair.possible
    for time in np.linspace(pair.first_ns, pair.last_ns, 7).astype(int).tolist():
        low, high = pair.at(time)
        assert low - 1 <= true_offset(time) <= high + 1  # made-up readings are rounded to whole nanoseconds


@pytest.mark.parametrize("uptime_ns", [0, 10**17])
def test_hundreds_of_calls_prove_microseconds_whatever_the_uptime(uptime_ns):
    calls, _ = simulate(3_000_000_000, 50e-6, start=uptime_ns)

    bounds = clock_bounds(calls)

    low, high = bounds.pairs[0, 1].at(uptime_ns + 1_000_000_000)
    assert low <= 3_000_050_000 <= high
    assert (high - low, round(bounds.max_error_us, 3)) == (4_427, 4.169)
    assert bounds.most_apart_us == pytest.approx(3_000_000 + 50e-6 * 1_990_000 + 4, abs=2)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(-50, 50)), min_size=3, max_size=400))
@settings(max_examples=60, deadline=None)
def test_what_is_left_out_before_the_hull_is_drawn_is_not_on_it(points):
    x, y = np.array(points, float).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_bounds_module, "FEW", 2)
        quick = clock_bounds_module._lower_hull(x, y)
        patch.setattr(clock_bounds_module, "FEW", 1000)
        thorough = clock_bounds_module._lower_hull(x, y)

    assert [part.tolist() for part in quick] == [part.tolist() for part in thorough]
