"""Checkpoints that are loaded without what belongs to them."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.resume_discontinuity import ResumeDiscontinuity
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import FAULTS, READING, RESUMED, TRAIN
from rankscope.testing.trainings import Training

SAVED = "torch.save /tmp/c.pt with optimizer"
LOADED = "torch.load /tmp/c.pt with optimizer"


def found_in(reading):
    return list(ResumeDiscontinuity().examine(reading.facts()))


def test_names_the_data_position():
    found = list(ResumeDiscontinuity().examine(FAULTS["resume-discontinuity"]()))

    assert [named(f) for f in found] == [
        Named("resume-discontinuity", "warning", (0, 1), True, None, "resume: the data position", TRAIN, None)
    ]
    assert (found[0].first_step, found[0].title) == (
        14,
        "the checkpoint loaded at step 14 does not bring back the data position in main (train.py:30)",
    )
    assert evidence_of(found) == {
        "first batches after it that are those of step 0; 14 had been read when it was saved": 14
    }


def test_names_a_schedule_that_begins_anew():
    def rate(step):
        return 1e-3 * 0.9 ** (step if step < 14 else step - 14)

    fresh = replace(RESUMED, order=READING.order, contents=READING.contents, training=Training(lr=rate))

    assert [f.component for f in found_in(fresh)] == ["resume: the schedule"]


def test_names_an_optimizer_whose_state_stays_in_the_file():
    calls = ((14, SAVED), (14, LOADED), (14, "Module.load_state_dict"))
    fresh = replace(RESUMED, order=READING.order, contents=READING.contents, calls=calls)

    assert [f.component for f in found_in(fresh)] == ["resume: the optimizer's state"]


def test_names_it_in_a_process_that_goes_on_with_its_own_file():
    calls = ((0, LOADED), (0, "Module.load_state_dict"), (30, SAVED))

    assert [f.first_step for f in found_in(replace(READING, calls=calls))] == [0]


def test_weights_of_somebody_else_are_no_resume():
    calls = ((0, LOADED), (0, "Module.load_state_dict"))

    assert found_in(replace(READING, calls=calls)) == []


def test_is_silent_where_everything_came_back():
    assert found_in(replace(RESUMED, order=READING.order, contents=READING.contents)) == []


def test_is_silent_at_the_end_of_an_epoch():
    calls = tuple((20, name) for _, name in RESUMED.calls)
    same = replace(READING, order=lambda rank, epoch, ordinal: (rank, ordinal), calls=calls)

    assert found_in(same) == []


def test_copies_between_networks_are_no_resume():
    with pytest.raises(CannotExamine, match="no checkpoint was taken over"):
        found_in(replace(READING, calls=tuple((step, "Module.load_state_dict") for step in range(0, 60, 5))))
