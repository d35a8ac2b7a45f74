"""Epochs that all have the same shuffled order."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.sampler_epoch_not_set import SamplerEpochNotSet
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import HEALTHY, READING, RESUMED, STUCK, TRAIN, lengths_sorted


def found_in(reading):
    return list(SamplerEpochNotSet().examine(reading.facts()))


def test_names_the_sampler_and_the_epoch_at_which_it_stays():
    found = found_in(STUCK)

    assert [named(f) for f in found] == [
        Named("sampler-epoch-not-set", "warning", (0, 1), True, "data", "DistributedSampler", TRAIN, None)
    ]
    assert (found[0].first_step, found[0].title) == (
        20,
        "all 3 epochs of Images have the same shuffled order: DistributedSampler stays at epoch 0",
    )
    assert evidence_of(found) == {
        "passes with the same sample indices": 3,
        "batches of each that are the same": 20,
    }


def test_finds_a_generator_that_is_made_anew_for_each_epoch():
    (found,) = found_in(replace(STUCK, sampler="RandomSampler", replicas=0))

    assert (found.title, found.confidence) == (
        "all 3 epochs of Images have the same shuffled order from RandomSampler",
        0.85,
    )


def test_is_silent_where_each_epoch_has_an_order_of_its_own():
    assert found_in(READING) == []


def test_is_silent_about_data_that_is_read_in_its_order():
    assert list(SamplerEpochNotSet().examine(HEALTHY["data that is stored well mixed and read in its order"]())) == []


def test_leaves_an_order_by_length_to_its_own_cause():
    assert found_in(replace(STUCK, length=lengths_sorted)) == []


def test_is_silent_where_a_checkpoint_was_loaded_between_the_passes():
    assert found_in(RESUMED) == []


def test_one_epoch_is_not_examined():
    with pytest.raises(CannotExamine, match="no loader was gone through twice"):
        found_in(replace(STUCK, epochs=1))


def test_a_stream_without_indices_is_not_examined():
    with pytest.raises(CannotExamine, match="no sample indices"):
        found_in(replace(STUCK, order=lambda rank, epoch, ordinal: None))
