"""Columns that never vary."""

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.constant_features import ConstantFeatures
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_contents import FAULTS, loss, table, training


def found(*parts):
    return [(f.severity, f.ranks, f.title) for f in ConstantFeatures().examine(training(*parts)())]


def test_names_the_column():
    (finding,) = ConstantFeatures().examine(FAULTS["constant-features"]())

    assert named(finding) == Named("constant-features", "warning", (0, 1), True, "data", "Houses", None, None)
    assert (finding.first_step, finding.title) == (0, "feature 4 of batch[0] of Houses has the value -1 in all samples")
    assert evidence_of([finding]) == {
        "features that never varied": 1.0,
        "features": 13.0,
        "value of feature 4": -1.0,
        "samples looked at": 2.0 * 32 * 65,
    }


def test_names_the_rank_whose_column_is_broken():
    def broken(writer, rank, step, at):
        table(**({"constant": 2, "first": 3} if rank == 1 else {}))(writer, rank, step, at)

    assert found(broken) == [
        ("warning", (1,), "feature 3 and 1 more of batch[0] of Houses have one value in all samples on rank 1")
    ]


def test_a_table_of_which_nothing_varies_is_critical():
    assert found(table(constant=13)) == [
        ("critical", (0, 1), "all 13 features of batch[0] of Houses have one value in all samples")
    ]


def test_is_silent_about_words_counted_margins_of_images_and_an_intercept():
    assert found(table(constant=3, zeros=200), table(name="batch[2]", constant=1, value=1.0)) == []


def test_cannot_examine_a_few_samples():
    with pytest.raises(CannotExamine, match="fewer than 100 samples"):
        found(table(samples=60))


def test_cannot_examine_a_run_without_tables():
    with pytest.raises(CannotExamine, match="fewer than 100 samples"):
        found(loss())
