"""User code that takes the time itself."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.slow_code import SlowCode
from rankscope.testing.checks import Named, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Code
from rankscope.testing.simulation import ASLEEP

METRICS = "/home/user/train.py:72:update_metrics"


@pytest.mark.parametrize(
    "name, expected",
    [
        (
            "slow function on rank 1",
            Named("slow-code", "warning", (1,), False, "other", "update_metrics", METRICS,
                  pytest.approx(0.23, abs=0.001)),
        ),
        (
            "slow function everywhere",
            Named("slow-code", "warning", (0, 1), True, "other", "update_metrics", METRICS,
                  pytest.approx(0.23, abs=0.002)),
        ),
        (
            "sleep inside forward on rank 1",
            Named("slow-code", "warning", (1,), False, "forward", "Net.forward", "/home/user/model.py:33:Net.wait",
                  pytest.approx(0.614, abs=0.06)),
        ),
        (
            "slow gradient hook",
            Named("slow-code", "warning", (0, 1), True, "backward", "gradient_hook",
                  "/home/user/train.py:25:gradient_hook",
                  pytest.approx(0.193, abs=0.04)),
        ),
        (
            "numpy between phases",
            Named("slow-code", "warning", (0,), False, "other", "smooth", "/home/user/train.py:55:smooth",
                  pytest.approx(0.23, abs=0.001)),
        ),
    ],
)  # fmt: skip
def test_names_function_line_and_rank(name, expected):
    assert found_by(SlowCode, known_run(name)) == [expected]


@pytest.mark.parametrize(
    "name",
    [
        "two ranks",
        "slow transform on the rank itself",
        "checkpoints on rank 0",
        "evaluation on rank 0",
        "histograms on rank 0",
        "staggered garbage collections",
        "metrics reduced one by one",
        "slow device",
        "a start that indexes",
    ],
)
def test_is_silent_where_a_cause_of_its_own_has_the_time(name):
    assert found_by(SlowCode, known_run(name)) == []


def test_is_silent_about_a_function_that_hides_behind_a_slower_peer():
    run = replace(BASE, forward_ms={0: 40.0}, parts=(Code(ms=15.0, ranks=(1,)),)).build()

    assert found_by(SlowCode, run) == []


def test_is_silent_about_a_small_function_of_all_ranks():
    assert found_by(SlowCode, replace(BASE, parts=(Code(ms=3.0),)).build()) == []


def test_finds_a_short_wait_inside_forward():
    wait = Code(ms=15.0, ranks=(1,), at="in-forward", state=ASLEEP, place="/home/user/model.py:33:Net.wait")

    assert [f.cause for f in found_by(SlowCode, replace(BASE, parts=(wait,)).build())] == ["slow-code"]


def test_a_function_never_takes_longer_than_the_phase_it_runs_in():
    short = {"forward_ms": 1.0, "backward_ms": 2.0, "optimizer_ms": 0.5, "transfer_ms": 0.1, "loader": None}
    for ms in (1.0, 3.0, 6.0):
        run = replace(BASE, ranks=1, steps=400, parts=(Code(ms=ms, place=METRICS),), sample_hz=100.0, **short).build()
        (finding,) = SlowCode().examine(run.facts)

        other = run.facts.work_ns(0, "other") / 1e6
        assert finding.cost.ms_per_step <= other + 1e-6
        assert finding.cost.recoverable_share == pytest.approx(finding.cost.share, abs=0.05)
