"""Steps, windows, counters and rows of a run."""

from dataclasses import replace

import pytest

from rankscope.analysis.facts import Facts
from rankscope.records.training import Forward
from rankscope.testing.host import Host
from rankscope.testing.known_runs import BASE, known_run


@pytest.mark.parametrize(
    "steps, warm_up, enough", [(3, 1, False), (9, 1, True), (8, 1, False), (50, 10, True), (300, 20, True)]
)
def test_a_fifth_of_the_steps_at_most_20_are_warm_up(steps, warm_up, enough):
    facts = replace(BASE, steps=steps, sample_hz=0.0).build().facts

    assert (facts.warm_up, facts.enough, len(facts.steps)) == (warm_up, enough, steps - warm_up)


def test_no_process_is_no_error():
    facts = Facts(replace(BASE.build(), rows=BASE.build().rows[:0], payloads=[]).tables)

    assert (facts.size, facts.world_size, facts.enough, facts.span_ns) == (0, 0, False, 0)


def test_inference_is_measured_by_its_forwards():
    facts = known_run("inference").facts

    assert (facts.inference, facts.all_steps) == (True, 100)
    assert facts.mean_step_ns == pytest.approx((25 + 0.3 + 0.03) * 1e6, rel=1e-3)


def test_steps_that_one_rank_did_not_finish_are_left_out():
    run = BASE.build()
    lost = (run.rows["process"] == 1001) & (run.rows["kind"] == 1) & (run.rows["step"] >= 90)
    facts = Facts(replace(run, rows=run.rows[~lost]).tables)

    assert facts.steps[[0, -1]].tolist() == [18, 89]


def test_after_a_hole_the_newest_unbroken_series_counts():
    run = BASE.build()
    hole = (run.rows["kind"] == 1) & (run.rows["step"] >= 20) & (run.rows["step"] < 40)
    facts = Facts(replace(run, rows=run.rows[~hole]).tables)

    assert facts.steps[[0, -1]].tolist() == [52, 99]  # 40 to 99, of these 12 to warm up


def test_counters_grow_per_ns_in_the_window():
    facts = replace(BASE, host=Host(run_delay={0: 0.25, 1: 0.5})).build().facts

    growth = [facts.counter("main_run_delay_ns", 1000 + r).growth(facts.begin, facts.end) for r in range(2)]

    assert growth == [pytest.approx(0.25), pytest.approx(0.5)]
    assert facts.counter("nothing", 1000).growth(facts.begin, facts.end) is None


def test_rows_are_those_of_one_process_in_the_window():
    facts = known_run("two ranks").facts

    assert [len(facts.rows(Forward, 1)), len(facts.rows(Forward, 1, window=False))] == [80, 100]


def test_step_of_names_the_step_of_a_moment():
    facts = known_run("two ranks").facts

    assert [facts.step_of(t) for t in (facts.begin - 1, facts.begin, facts.end, facts.end + 1)] == [None, 20, 99, None]


def test_time_per_step_is_by_the_rank_s_own_steps():
    facts = replace(BASE, forward_ms=lambda r, s: 10.0 + s % 3).build().facts

    assert (facts.per_step(0, facts.work(0, "forward"))[:6] / 1e6).tolist() == [12, 10, 11, 12, 10, 11]
