"""Ranks that train on the same batches."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.duplicate_data_across_ranks import DuplicateDataAcrossRanks
from rankscope.records.collective import Collective
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import HEALTHY, READING, SAME, TRAIN
from rankscope.testing.trainings import MS, Training


def found_in(reading):
    return list(DuplicateDataAcrossRanks().examine(reading.facts()))


def test_names_the_dataset_and_the_ranks():
    found = found_in(SAME)

    assert [named(f) for f in found] == [
        Named("duplicate-data-across-ranks", "critical", (0, 1), True, "data", "Stream", TRAIN, None)
    ]
    assert found[0].first_step == 0
    assert evidence_of(found) == {"batches that are equal on all ranks, of 60 compared": 60}


def test_names_the_ranks_that_share_and_no_others():
    reading = replace(SAME, ranks=4, contents=lambda rank, epoch, ordinal: (min(rank, 2), epoch, ordinal))

    (found,) = found_in(reading)

    assert (found.ranks, found.all_ranks) == ((2, 3), False)


def test_sees_through_augmentation_by_indices_and_labels():
    reading = replace(
        READING,
        order=lambda rank, epoch, ordinal: (epoch, ordinal),
        integers=lambda rank, epoch, ordinal: (epoch, ordinal),
    )

    (found,) = found_in(reading)

    assert (found.confidence, found.title) == (
        0.9,
        "all ranks train on the same samples at the same time: Images is split as if for another rank",
    )


@pytest.mark.parametrize(
    "name", ["data that is shuffled and split", "a stream that is split by rank", "one fixed batch",
             "shards with the same indices"],
)  # fmt: skip
def test_is_silent_where_ranks_read_their_own(name):
    assert list(DuplicateDataAcrossRanks().examine(HEALTHY[name]())) == []


def test_ranks_that_compute_one_forward_together_read_the_same_batch():
    def reduce_activations(w, rank, step, begin):
        SAME._extra(w, rank, step, begin)
        at = begin + 2 * MS
        w.put(Collective, at, at + 10, step, name="allreduce_", group="group:default", sequence=1000 + step,
              elements=512, site=TRAIN)  # fmt: skip

    training = Training(steps=60, extra=reduce_activations)
    with pytest.raises(CannotExamine, match="no ranks that average gradients"):
        list(DuplicateDataAcrossRanks().examine(training.facts()))


def test_ranks_of_a_sweep_that_communicate_nothing_are_not_examined():
    with pytest.raises(CannotExamine, match="no ranks that average gradients"):
        found_in(replace(SAME, training=Training(wrapper="")))
