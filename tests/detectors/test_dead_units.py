"""Units that are zero whatever goes in."""

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.dead_units import DeadUnits
from rankscope.testing.checks import evidence_of
from rankscope.testing.silent_dynamics import dying
from rankscope.testing.trainings import Training


def found_in(training):
    return list(DeadUnits().examine(training.facts()))


def leaps_at_30(rank, step):
    return 200.0 if step == 30 else 1.0


def test_names_layer_and_share_and_since_when():
    (found,) = found_in(dying(lambda step: 0.42 if step >= 30 else 0.0, loss=leaps_at_30))

    assert (found.severity, found.ranks, found.all_ranks, found.phase, found.component, found.first_step) == (
        "warning", (0, 1), True, "forward", "acts.0", 32,
    )  # fmt: skip
    assert found.title == (
        "42 % of the 64 units of acts.0 and 11 more layers are zero for every input and get no gradient"
    )
    evidence = evidence_of([found])
    assert evidence["acts.0: units that were zero throughout the last 2 looks"] == pytest.approx(0.42, abs=0.01)
    assert evidence["acts.0: the same at the start"] == 0
    assert evidence["acts.0: zeros in the gradient of its weights"] == pytest.approx(0.42, abs=0.01)


def test_is_silent_where_no_event_killed_them_and_most_still_live():
    assert found_in(dying(lambda step: 0.42 if step >= 30 else 0.0)) == []


def test_units_that_died_on_the_way_of_a_training_that_has_learned_are_a_remark():
    (found,) = found_in(dying(lambda step: 0.7 if step >= 30 else 0.0))

    assert found.severity == "info"


def test_a_layer_that_was_dead_from_the_start_passes_nothing():
    assert [(f.component, f.first_step) for f in found_in(dying(lambda step: 0.97))] == [("acts.0", 0)]


def test_is_silent_where_some_units_are_off_from_the_start():
    assert found_in(dying(lambda step: 0.35)) == []


def test_is_silent_where_units_come_back():
    assert found_in(dying(lambda step: 0.6 if 8 <= step < 34 else 0.0)) == []


def test_is_silent_where_units_that_are_off_get_gradients_from_other_batches():
    assert found_in(dying(lambda step: 0.0 if step < 8 else 0.6, gradient_zeros=0.1)) == []


def test_is_silent_about_a_sparse_code():
    # The units that are on are so for 3 % of the inputs.
    assert found_in(dying(lambda step: 0.2 if step < 8 else 0.6, zeros=0.97)) == []


def test_is_silent_where_half_of_all_outputs_and_more_are_zero():
    assert found_in(dying(lambda step: 0.02, zeros=0.88)) == []


def test_what_was_not_looked_at_is_not_examined():
    with pytest.raises(CannotExamine, match="no layer of at least 8 units"):
        found_in(Training())
