"""One rank's path into the network."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.slow_link import SlowLink
from rankscope.testing.checks import Named, found_by
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import CommunicationHook
from rankscope.testing.simulation import ASLEEP, PYTHON


def test_names_the_rank_whose_transfers_take_longer():
    assert found_by(SlowLink, known_run("slow path of rank 1")) == [
        Named("slow-link", "warning", (1,), False, "communication", "network path of rank 1",
              "/home/user/train.py:45:main", pytest.approx(0.23, abs=0.001))
    ]  # fmt: skip


def test_names_the_code_that_waits_for_the_path():
    assert found_by(SlowLink, known_run("slow path in a hook of rank 1")) == [
        Named("slow-link", "warning", (1,), False, "communication", "network path of rank 1 (compress_hook)",
              "/home/user/train.py:84:compress_hook", pytest.approx(0.642, abs=0.001))
    ]  # fmt: skip


def test_names_the_rank_with_unsent_bytes_where_all_wait_alike():
    assert found_by(SlowLink, known_run("slow path of rank 1, seen by its queue")) == [
        Named("slow-link", "warning", (1,), False, "communication", "network path of rank 1",
              "/home/user/train.py:45:main", pytest.approx(0.1534, abs=0.001))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["two ranks", "four ranks", "slow network", "slow device", "slow function on rank 1", "slow transform on rank 1"],
)
def test_is_silent_where_a_rank_comes_late_or_all_are_alike(name):
    assert found_by(SlowLink, known_run(name)) == []


def test_is_silent_where_the_hook_computes():
    run = replace(BASE, hook=CommunicationHook(ms={1: 45.0}, state=PYTHON)).build()

    assert found_by(SlowLink, run) == []


def test_finds_short_waits_in_a_hook():
    run = replace(BASE, hook=CommunicationHook(ms={1: 8.0}, state=ASLEEP)).build()

    assert [(f.cause, f.ranks) for f in found_by(SlowLink, run)] == [("slow-link", (1,))]


def test_cannot_examine_one_rank():
    with pytest.raises(CannotExamine, match="one rank"):
        found_by(SlowLink, known_run("one process"))
