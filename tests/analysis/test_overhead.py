"""What observing cost, from the run itself."""

from dataclasses import replace

import pytest

from rankscope.analysis.overhead import measure_overhead
from rankscope.testing.host import Host
from rankscope.testing.known_runs import BASE, known_run

ALONE = replace(BASE, sample_hz=0.0, host=None)


def test_is_what_the_hooks_took_of_a_step():
    share, method = measure_overhead(replace(ALONE, own_us=502.14).build().facts)

    assert share == pytest.approx(0.01, rel=1e-4)
    assert method == "hooks 1.00%, timed by themselves on the worst rank; stack samples 0.00%"


def test_stack_samples_are_added_with_what_their_thread_said_it_used():
    without, _ = measure_overhead(ALONE.build().facts)
    share, _ = measure_overhead(replace(ALONE, sample_hz=20.0).build().facts)

    assert share - without == pytest.approx(18.5 * 60e-6, rel=0.06)  # 18.5 samples a second, 45 + 15 us each


def test_the_recorder_counts_as_far_as_no_cpu_was_idle():
    without, _ = measure_overhead(ALONE.build().facts)
    share, method = measure_overhead(replace(ALONE, host=Host(recorder_cpu=0.16, machine_busy=4.0)).build().facts)

    assert share - without == pytest.approx(0.16 / 8 * 4 / 8, rel=1e-3)
    assert method.endswith("; recorder 1.00% of all CPUs")


def test_one_slow_step_of_ours_does_not_count():
    slow = replace(ALONE, forward_ms=lambda r, s: 900.0 if s == 70 else 15.0)

    share, _ = measure_overhead(slow.build().facts)

    assert share == pytest.approx(60e-6 / 50.214e-3, rel=1e-3)


def test_a_healthy_run_is_within_the_budget():
    share, _ = measure_overhead(known_run("two ranks").facts)

    assert 0 < share < 0.01


@pytest.mark.parametrize("run", [replace(BASE, steps=4), replace(BASE, ranks=1, inference=True)])
def test_is_not_known_without_training_steps(run):
    assert measure_overhead(run.build().facts)[0] is None
