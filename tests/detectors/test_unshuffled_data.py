"""Training data that comes class by class."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.unshuffled_data import UnshuffledData
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import FAULTS, HEALTHY, READING, TRAIN, UNSHUFFLED, one_class


def found_in(reading):
    return list(UnshuffledData().examine(reading.facts()))


def test_names_the_dataset_and_how_alike_its_batches_are():
    found = found_in(UNSHUFFLED)

    assert [named(f) for f in found] == [
        Named("unshuffled-data", "warning", (0, 1), True, "data", "Images", TRAIN, None)
    ]
    assert found[0].first_step == 0
    assert evidence_of(found) == {
        "chance that two labels of a batch differ, over that of any two": 0,
        "the same for two labels of neighbouring batches": pytest.approx(29 / 59 / 0.9),
        "classes in a batch, in the median": 1,
        "batches with labels that were compared": 60,
    }


def test_finds_a_stream_that_is_stored_class_by_class():
    assert len(found_in(replace(UNSHUFFLED, order=lambda rank, epoch, ordinal: None, ascending=False))) == 1


def test_is_silent_where_classes_are_mixed():
    assert found_in(READING) == []


def test_is_silent_about_data_that_is_stored_well_mixed():
    assert list(UnshuffledData().examine(HEALTHY["data that is stored well mixed and read in its order"]())) == []


def test_is_silent_about_a_sampler_that_takes_a_few_classes_for_each_batch():
    assert list(UnshuffledData().examine(HEALTHY["a few classes in each batch"]())) == []


def test_is_silent_where_a_sampler_wants_one_class_after_the_other():
    assert found_in(replace(READING, labels=one_class)) == []


def test_leaves_one_change_to_its_own_cause():
    assert list(UnshuffledData().examine(FAULTS["class-shift"]())) == []


def test_labels_that_never_vary_say_nothing_of_an_order():
    with pytest.raises(CannotExamine, match="no training loader with class labels"):
        found_in(replace(UNSHUFFLED, labels=lambda rank, epoch, ordinal: [3] * 16))
