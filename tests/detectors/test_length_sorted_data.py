"""Training batches that come sorted by length."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.length_sorted_data import LengthSortedData
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import HEALTHY, READING, SORTED, TRAIN


def found_in(reading):
    return list(LengthSortedData().examine(reading.facts()))


def test_names_the_sampler_and_the_share_of_batches_that_go_one_way():
    found = found_in(SORTED)

    assert [named(f) for f in found] == [
        Named("length-sorted-data", "warning", (0, 1), True, "data", "DistributedSampler", TRAIN, None)
    ]
    assert (found[0].first_step, found[0].title) == (
        0,
        "batches of Images come sorted by length, long to short, again and again",
    )
    evidence = evidence_of(found)
    assert (
        evidence["successive batches whose length changes the same way"],
        evidence["such pairs of batches"],
        evidence["the longest tenth over the shortest tenth"] > 2,
    ) == (pytest.approx(18 / 19), 19, True)


def test_finds_a_dataset_that_is_stored_by_length():
    stored = replace(SORTED, ascending=True, length=lambda rank, epoch, ordinal: 100 + 10 * ordinal)

    assert [f.component for f in found_in(stored)] == ["Images"]


def test_is_silent_about_groups_in_random_order():
    assert list(LengthSortedData().examine(HEALTHY["groups of similar length in random order"]())) == []


def test_is_silent_about_a_curriculum_that_grows_once():
    assert found_in(replace(SORTED, length=lambda rank, epoch, ordinal: 100 + 10 * (20 * epoch + ordinal))) == []


def test_is_silent_about_lengths_that_hardly_vary():
    assert found_in(replace(SORTED, length=lambda rank, epoch, ordinal: 520 - ordinal % 10)) == []


def test_a_few_batches_are_not_examined():
    with pytest.raises(CannotExamine, match="more than 16 batches"):
        found_in(replace(READING, batches=10))
