"""What observing cost, from the run itself."""

from dataclasses import replace

import pytest

from rankscope.analysis.overhead import measure_overhead
from rankscope.testing.known_runs import BASE, known_run


def test_is_what_the_hooks_took_of_a_step():
    share, method = measure_overhead(replace(BASE, sample_hz=0.0, own_us=502.1).build().facts)

    assert share == pytest.approx(0.01, rel=1e-4)
    assert "every hook times itself" in method


def test_stack_samples_are_added():
    without, _ = measure_overhead(known_run("no stack samples").facts)
    share, _ = measure_overhead(known_run("two ranks").facts)

    assert share - without == pytest.approx(18.5 * 60e-6, rel=0.06)  # 18.5 samples a second


def test_one_slow_step_of_ours_does_not_count():
    share, _ = measure_overhead(replace(BASE, sample_hz=0.0, forward_ms=lambda r, s: 900.0 if s == 70 else 15.0).build().facts)

    assert share == pytest.approx(60e-6 / 50.21e-3, rel=1e-3)


@pytest.mark.parametrize("run", [replace(BASE, steps=4), replace(BASE, ranks=1, inference=True)])
def test_is_not_known_without_training_steps(run):
    assert measure_overhead(run.build().facts)[0] is None
