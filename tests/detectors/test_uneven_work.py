"""Work that is unevenly dealt to the ranks."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.uneven_work import UnevenWork
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import FAULTS, known_run, repaired_run
from rankscope.testing.runs import recoverable_share

BATCHES = "batches: how samples are dealt to the ranks"


def test_names_all_ranks_where_the_slow_one_moves():
    run = known_run("uneven batches, moving")

    assert found_by(UnevenWork, run) == [
        Named("uneven-work", "warning", (0, 1), True, "forward", BATCHES, None, pytest.approx(0.13, abs=0.02))
    ]
    correlation = "rank correlation between difference in work and difference in compute time"
    assert evidence_of(UnevenWork().examine(run.facts))[correlation] == pytest.approx(1.0, abs=0.001)


def test_the_gain_is_what_an_even_deal_would_save():
    name = "uneven batches, moving"
    [found] = found_by(UnevenWork, known_run(name))

    assert found.share == pytest.approx(recoverable_share(known_run(name), repaired_run(name)), abs=0.005)


def test_names_the_rank_that_always_has_more():
    assert found_by(UnevenWork, known_run("longer batches on rank 1")) == [
        Named("uneven-work", "warning", (1,), False, "forward", BATCHES, None, pytest.approx(0.1272, abs=0.001))
    ]


def test_names_the_one_of_four_that_has_more():
    run = replace(FAULTS["longer batches on rank 1"].run, ranks=4, noise=0.03).build()

    assert [(f.cause, f.ranks) for f in found_by(UnevenWork, run)] == [("uneven-work", (1,))]


@pytest.mark.parametrize(
    "name", ["two ranks", "slow device", "batches that differ alike on all ranks", "slow function on rank 1"]
)
def test_is_silent_where_the_inputs_are_even(name):
    assert found_by(UnevenWork, known_run(name)) == []


def test_cannot_examine_one_rank():
    with pytest.raises(CannotExamine, match="one rank"):
        found_by(UnevenWork, known_run("one process"))
