"""Random generators that draw the same in several workers or epochs."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.worker_rng_duplicated import WorkerRngDuplicated
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import COPIED, GETITEM, HEALTHY, READING


def found_in(reading):
    return list(WorkerRngDuplicated().examine(reading.facts()))


def test_names_the_generator_and_what_repeats():
    found = found_in(COPIED)

    assert [named(f) for f in found] == [
        Named("worker-rng-duplicated", "warning", (0, 1), True, "data", "Images.rng", GETITEM, None)
    ]
    assert (found[0].first_step, found[0].title) == (
        0,
        "Images.rng draws the same numbers in 2 of 2 loader workers and in 3 epochs"
        " in Images.__getitem__ (data.py:12)",
    )
    assert evidence_of(found) == {
        "workers in which Images.rng begins in the same state, of 2": 2,
        "epochs in which Images.rng begins in the same state": 3,
    }


def test_finds_workers_that_are_seeded_by_their_number_alone():
    (found,) = found_in(
        replace(COPIED, states=lambda rank, epoch, worker: [(worker, fetches) for fetches in range(3)])
    )

    assert found.title.startswith("Images.rng draws the same numbers in 3 epochs")


@pytest.mark.parametrize("name", ["workers that are seeded", "a generator that the workers never use"])
def test_is_silent_on_healthy_workers(name):
    assert list(WorkerRngDuplicated().examine(HEALTHY[name]())) == []


def test_is_silent_about_a_shuffle_at_the_start_that_all_workers_do_alike():
    assert found_in(replace(COPIED, states=lambda rank, epoch, worker: ["seed", "shuffled", "shuffled"])) == []


def test_is_silent_about_streams_that_shuffle_alike_and_read_different_parts():
    assert found_in(replace(COPIED, iterable=True)) == []


def test_finds_streams_whose_workers_make_the_same_samples():
    twice = replace(COPIED, iterable=True, contents=lambda rank, epoch, ordinal: (rank, epoch, ordinal // 2))

    assert [f.cause for f in found_in(twice)] == ["worker-rng-duplicated"]


def test_without_workers_nothing_is_examined():
    with pytest.raises(CannotExamine, match="no loader worker"):
        found_in(READING)
