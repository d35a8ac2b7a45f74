"""A change of the classes in the middle of a run."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.class_shift import ClassShift
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import FAULTS, READING, TRAIN, UNSHUFFLED, mixed


def found_in(reading):
    return list(ClassShift().examine(reading.facts()))


def test_names_the_rank_and_the_step():
    found = list(ClassShift().examine(FAULTS["class-shift"]()))

    assert [named(f) for f in found] == [
        Named("class-shift", "warning", (1,), False, "data", "Images", TRAIN, None)
    ]
    assert (found[0].first_step, found[0].title) == (
        30,
        "the classes of Images change at step 30 on rank 1: 51 % of the labels are others",
    )
    assert evidence_of(found) == {
        "labels that would have to be others for both sides of step 30 to be alike, of 60 batches":
            pytest.approx(0.51, abs=0.005)
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_is_silent_about_chance(seed):
    reading = replace(READING, labels=lambda rank, epoch, ordinal: mixed(rank + 10 * seed + 10, epoch, ordinal)[:8])

    assert found_in(reading) == []


def test_leaves_data_that_is_read_class_by_class_to_its_own_cause():
    assert found_in(replace(UNSHUFFLED, epochs=1)) == []
    assert found_in(replace(UNSHUFFLED, labels=lambda rank, epoch, ordinal: [epoch * 20 + ordinal > 29] * 16)) == []


def test_is_silent_about_a_slight_change():
    def slight(rank, epoch, ordinal):
        found = mixed(rank, epoch, ordinal)
        return [0, *found[1:]] if epoch else found

    assert found_in(replace(READING, labels=slight)) == []


def test_a_training_without_class_labels_is_not_examined():
    with pytest.raises(CannotExamine, match="no training loader with class labels"):
        found_in(replace(READING, epochs=1, batches=7))
