"""Learning-rate schedules that run too fast or end early."""

from rankscope.analysis.detectors.scheduler_overstepped import SchedulerOverstepped
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import Training


def found(facts):
    return [(named(f), f.first_step) for f in SchedulerOverstepped().examine(facts)]


def finding(severity, component, step):
    return [(Named("scheduler-overstepped", severity, (0, 1), True, "optimizer", component, None, None), step)]


def test_names_the_schedule_that_steps_twice_and_when_it_is_over():
    facts = made.schedule(2, horizon=70)

    assert found(facts) == finding("warning", "learning-rate schedule CosineAnnealingLR", 1)
    assert [f.title for f in SchedulerOverstepped().examine(facts)] == [
        "CosineAnnealingLR steps 2.0 times for each step of the optimizer: it is over after 50 % of the run"
    ]
    assert evidence_of(SchedulerOverstepped().examine(facts)) == {
        "steps of the schedule for each step of the optimizer": 2.0,
        "steps of the schedule at the end of the run": 140.0,
        "steps that the schedule has": 70.0,
    }


def test_names_a_rate_that_is_zero_long_before_the_end():
    assert found(made.without_rate(40)) == finding("critical", "learning-rate schedule", 40)


def test_is_silent_where_the_length_is_in_the_same_unit():
    consistent = made.schedule(2, horizon=140)
    micro = made.schedule(2, kind="StepLR", micro_batches=2)
    linear = made.schedule(2, kind="LambdaLR", lr=lambda step: 1e-3 * (1 - (step + 1) / 70))

    assert [found(consistent), found(micro), found(linear)] == [[], [], []]


def test_is_silent_about_one_step_each_and_about_one_an_epoch():
    assert [found(made.schedule(1, horizon=35)), found(made.schedule(0, horizon=5))] == [[], []]


def test_is_silent_about_a_constant_minimum_and_about_an_end_with_the_run():
    minimum = Training(lr=lambda step: max(1e-5, 1e-3 * (1 - step / 20))).facts()
    end = Training(lr=lambda step: 1e-3 * (1 - step / 69)).facts()

    assert [found(minimum), found(end)] == [[], []]


def test_is_silent_where_accelerate_steps_for_all_processes():
    facts = made.schedule(2, kind="StepLR", accelerated=1)

    assert found(facts) == []
