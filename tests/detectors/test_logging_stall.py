"""Logging that stops the run."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.logging_stall import LoggingStall
from rankscope.testing.checks import Named, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Code
from rankscope.testing.simulation import ASLEEP


def test_names_the_function_that_logs_by_its_name():
    assert found_by(LoggingStall, known_run("histograms on rank 0")) == [
        Named("logging-stall", "warning", (0,), False, "logging", "log_histograms",
              "/home/user/train.py:52:log_histograms",
              pytest.approx(0.2417, abs=0.001))
    ]  # fmt: skip


def test_names_the_line_that_calls_a_logging_library():
    assert found_by(LoggingStall, known_run("a tracker that uploads")) == [
        Named("logging-stall", "warning", (0, 1), True, "logging", "publish", "/home/user/train.py:53:publish",
              pytest.approx(0.5444, abs=0.001))
    ]  # fmt: skip


def test_finds_short_logging_at_every_step():
    wandb = "/home/user/venv/lib/python3.11/site-packages/wandb/sdk/wandb_run.py:1800:Run.log"
    run = replace(BASE, parts=(Code(ms=12.0, state=ASLEEP, below=(wandb,)),)).build()  # 19 % of the run

    assert [f.cause for f in found_by(LoggingStall, run)] == ["logging-stall"]


@pytest.mark.parametrize("name", ["two ranks", "a quick logger", "checkpoints on rank 0", "slow function on rank 1"])
def test_is_silent_where_logging_is_quick_or_something_else_is_slow(name):
    assert found_by(LoggingStall, known_run(name)) == []
