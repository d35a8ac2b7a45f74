"""Averages that do not follow the weights."""

from rankscope.analysis.detectors.ema_not_updating import EmaNotUpdating
from rankscope.records.loading import BatchWait
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import Training


def found(facts):
    return [(named(f), f.first_step) for f in EmaNotUpdating().examine(facts)]


def test_names_the_variable_and_the_class():
    facts = made.averages(moves=False)

    assert found(facts) == [
        (Named("ema-not-updating", "warning", (0, 1), True, "optimizer", "ema (EMA)", None, None), 0)
    ]
    assert evidence_of(EmaNotUpdating().examine(facts)) == {
        "tensors of the average that were compared": 7.0,
        "steps without any change in them": 64.0,
    }


def test_is_silent_about_an_average_that_follows():
    assert found(made.averages(moves=True)) == []


def test_is_silent_about_one_that_begins_late_or_averages_the_end_of_the_run():
    late = made.averages(moves=False, waits=500)
    swa = made.averages(moves=False, name="swa_model", kind="AveragedModel")

    assert [found(late), found(swa)] == [[], []]


def test_only_remarks_where_no_epoch_has_ended_yet():
    def extra(w, rank, step, t):
        made.average_of("ema", "EMA")(w, rank, step, t)
        w.put(BatchWait, t, t + 1, step, name="Data", loader=1, ordinal=step)

    assert [f.severity for f in EmaNotUpdating().examine(Training(extra=extra).facts())] == ["info"]
