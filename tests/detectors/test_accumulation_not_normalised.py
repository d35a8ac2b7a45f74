"""Accumulation whose gradient grows with the number of micro-batches."""

from dataclasses import replace

from rankscope.analysis.detectors.accumulation_not_normalised import AccumulationNotNormalised
from rankscope.records.loading import BatchWait
from rankscope.records.training import Backward, Forward
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import SITE


def found_in(facts):
    return list(AccumulationNotNormalised().examine(facts))


def windows(sizes, value):
    """Windows of `sizes(step)` micro-batches, whose losses are multiplied with `value`."""

    def write(w, rank, step, t):
        made.factor(value)(w, rank, step, t)
        for extra in range(sizes(step) - 1):
            w.put(Forward, t + extra, t + extra + 1, step, name="Net", elements=8, model="Net", training=1, grad=1)
            w.put(Backward, t + extra, t + extra + 1, step, site=SITE)

    return replace(made.WRAPPED, steps=130, extra=write)


def test_names_the_line_and_the_number_of_micro_batches():
    found = found_in(made.accumulated().facts())

    assert [named(f) for f in found] == [
        Named("accumulation-not-normalised", "warning", (0, 1), True, "backward", "loss of a micro-batch", SITE, None)
    ]
    assert found[0].first_step == 0
    assert evidence_of(found) == {
        "micro-batches in a window": 4.0,
        "what each loss is multiplied with before backward": 1.0,
    }


def test_names_numbers_that_change_in_the_run():
    found = found_in(windows(lambda step: 1 if step < 40 else 8, 1.0).facts())

    assert [(f.severity, f.first_step) for f in found] == [("warning", 48)]
    assert found[0].title == (
        "the gradients of 1 to 8 micro-batches are added up and not divided in main (train.py:40): a step is up to 8 "
        "times as large as that of one batch"
    )


def test_is_a_remark_where_the_optimizer_divides_by_the_size():
    assert [f.severity for f in found_in(made.accumulated(optimizer="AdamW").facts())] == ["info"]


def test_names_short_windows_that_are_divided_like_full_ones():
    found = found_in(windows(lambda step: 2 if step % 8 == 0 else 4, 0.25).facts())

    assert [(f.severity, f.first_step) for f in found] == [("warning", 0)]
    assert found[0].title == (
        "windows of 2 micro-batches are divided by 4 like full ones in main (train.py:40): 13 % of the steps count 2/4 "
        "of what they should"
    )


def test_is_silent_where_short_windows_are_divided_by_their_own_number():
    def size(step):
        return 2 if step % 8 == 0 else 4

    assert found_in(windows(size, lambda step: 1 / size(step)).facts()) == []


def test_is_silent_where_losses_are_divided():
    assert found_in(made.accumulated(0.25).facts()) + found_in(made.no_sync_but_for_the_last()) == []


def test_is_silent_where_gradients_are_divided_afterwards():
    run = made.accumulated(
        gradient=lambda rank, step, p: {"rms": 0.0025}, raw_gradient=lambda rank, step, p: {"rms": 0.01}
    )

    assert found_in(run.facts()) == []


def test_is_silent_about_losses_of_two_lines():
    assert found_in(made.two_lines()) == []


def test_is_silent_about_one_batch_that_is_trained_piece_by_piece():
    def one_batch(w, rank, step, t):
        made.factor(1.0, 4)(w, rank, step, t)
        w.put(BatchWait, t, t, step)

    assert found_in(made.accumulated(extra=one_batch).facts()) == []


def test_is_silent_about_several_losses_of_one_forward():
    def backwards(w, rank, step, t):
        made.factor(1.0)(w, rank, step, t)
        for more in range(3):
            w.put(Backward, t + more, t + more, step, site=SITE)

    assert found_in(replace(made.WRAPPED, extra=backwards).facts()) == []


def test_is_silent_about_steps_that_are_left_out_now_and_then():
    run = windows(lambda step: 2 if step % 10 == 0 else 1, 1.0)

    assert found_in(run.facts()) == []
