"""Loss scaling that leaves out most steps."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.loss_scale_collapse import LossScaleCollapse
from rankscope.records.activations import ActivationStat
from rankscope.records.gradient_calls import NOT_FINITE, GradientSet
from rankscope.records.not_finite import OPERATION, NotFinite
from rankscope.records.training import Backward
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named


def found_in(facts):
    return list(LossScaleCollapse().examine(facts))


def attempts(of):
    extra = made.both(made.wrapping(), made.scaler(lambda step: 65536.0, of))
    return replace(made.WRAPPED, extra=extra)


def test_names_the_layer_and_what_became_of_the_scale():
    found = found_in(made.collapsed())

    assert [named(f) for f in found] == [
        Named("loss-scale-collapse", "critical", (0, 1), True, "backward", "layers.0", made.CLIP_SITE, None)
    ]
    assert found[0].first_step == 5
    assert evidence_of(found) == {
        "optimizer steps that were left out": 30.0,
        "of so many attempts": 100.0,
        "share": 0.3,
        "loss scale at the start": 65536.0,
        "loss scale at the end": 65536.0 / 2**30,
    }


def test_an_output_that_is_not_finite_names_the_layer_first():
    run = attempts(lambda step: 1 + 30 * (step == 5))

    def write(w, rank, step, t):
        run.extra(w, rank, step, t)
        if step == 4:
            w.put(ActivationStat, t, t, step, name="embed", model="Net", finite=1, least=-900.0, most=20.0)
            w.put(ActivationStat, t + 1, t + 1, step, name="layers.0.wide", model="Net", finite=0)

    assert [f.component for f in found_in(replace(run, extra=write).facts())] == ["layers.0.wide"]


def test_sees_steps_that_a_program_leaves_out_by_hand():
    def write(w, rank, step, t):
        if step == 8:
            for attempt in range(40):
                w.put(Backward, t + attempt, t + attempt, step, site=made.CLIP_SITE)
            w.put(GradientSet, t + 50, t + 50, step, name="head.bias head.weight", count=2, of=7, what=NOT_FINITE,
                  last=1)  # fmt: skip

    found = found_in(replace(made.WRAPPED, extra=write).facts())

    assert [(f.component, f.first_step, f.title) for f in found] == [
        ("loss scale", 8, "40 of 110 optimizer steps are left out: gradients are not finite at any scale")
    ]


def test_is_silent_about_a_scale_that_finds_its_level():
    assert found_in(attempts(lambda step: 8 if not step else 1).facts()) == []


def test_is_silent_about_a_step_left_out_now_and_then():
    assert found_in(attempts(lambda step: 2 if step % 10 == 9 else 1).facts()) == []


def test_is_not_examined_without_a_scaler():
    with pytest.raises(CannotExamine, match="no GradScaler"):
        found_in(made.WRAPPED.facts())


def test_the_operation_that_made_a_loss_infinite_names_the_layer_before_all():
    run = attempts(lambda step: 1 + 30 * (step == 5))

    def write(w, rank, step, t):
        run.extra(w, rank, step, t)
        if step == 4:
            w.put(NotFinite, t, t, step, name="exp", module="layers.0.gate.weight", origin=OPERATION)
            w.put(ActivationStat, t, t, step, name="head", model="Net", finite=0)

    assert [f.component for f in found_in(replace(run, extra=write).facts())] == ["layers.0.gate"]


def test_an_overflow_between_two_layers_is_that_of_the_one_before():
    run = attempts(lambda step: 1 + 30 * (step == 5))

    def write(w, rank, step, t):
        run.extra(w, rank, step, t)
        if step == 4:
            w.put(ActivationStat, t, t, step, name="layers.0.wide", model="Net", finite=1, least=-3.0, most=2.0)
            w.put(ActivationStat, t + 1, t + 1, step, name="head", model="Net", finite=0)

    found = found_in(replace(run, extra=write).facts())

    assert [(f.component, f.title.split(": ")[1]) for f in found] == [
        ("layers.0.wide", "layers.0.wide overflows (between its output and that of head)")
    ]
