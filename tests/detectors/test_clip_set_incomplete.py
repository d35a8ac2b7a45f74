"""Clipping of a part of the gradients, or by another norm on each rank."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.clip_set_incomplete import ClipSetIncomplete
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named


def found_in(facts):
    return list(ClipSetIncomplete().examine(facts))


def test_names_gradients_that_no_clipping_covers():
    found = found_in(made.clipped_in_part())

    assert [named(f) for f in found] == [
        Named("clip-set-incomplete", "warning", (0, 1), True, "optimizer", "head.weight, head.bias", made.CLIP_SITE,
              None)
    ]  # fmt: skip
    assert evidence_of(found) == {
        "gradients that are left out": 2.0,
        "gradients that the optimizer uses": 7.0,
        "norm of what is left out, step 0": 3.0,
        "norm that clipping saw, step 0": 2.0,
        "limit": 1.0,
    }


def test_what_would_not_be_clipped_anyway_is_a_remark():
    run = replace(
        made.WRAPPED,
        extra=made.both(made.wrapping(), made.clip(limit=5.0), made.outside("head.weight head.bias", 2, 3.0)),
    )

    assert [f.severity for f in found_in(run.facts())] == ["info"]


def test_names_what_a_clipping_by_hand_leaves_out():
    def gradient(rank, step, p):
        return {} if p.path == "head.bias" else {"fingerprint": step, "rms": 0.01 / (step + 2)}

    def raw(rank, step, p):
        return {} if p.path == "head.bias" else {"rms": 0.01}

    found = found_in(replace(made.WRAPPED, gradient=gradient, raw_gradient=raw).facts())

    assert [(f.component, f.severity, f.first_step) for f in found] == [("head.bias", "warning", 0)]


def test_is_silent_about_a_factor_that_somebody_chose_for_some_parameters():
    def gradient(rank, step, p):
        return {} if p.path == "head.bias" else {"fingerprint": step, "rms": 0.001}

    def raw(rank, step, p):
        return {} if p.path == "head.bias" else {"rms": 0.01}

    assert found_in(replace(made.WRAPPED, gradient=gradient, raw_gradient=raw).facts()) == []


def test_names_coefficients_that_differ_between_ranks():
    def gradient(rank, step, p):
        return {"fingerprint": step + 1000 * rank, "rms": 0.005 * (1 + rank)}

    run = replace(
        made.WRAPPED, gradient=gradient, weight=made.own_weight,
        extra=made.both(made.wrapping(), made.clip(norm=lambda rank: 4.0 - 2 * rank)),
    )  # fmt: skip

    found = found_in(run.facts())

    assert [named(f) for f in found] == [
        Named("clip-set-incomplete", "critical", (0, 1), True, "optimizer", "clipping coefficient", made.CLIP_SITE,
              None)
    ]  # fmt: skip
    assert evidence_of(found) == {
        "sampled steps on which the coefficients differ": 10.0,
        "largest ratio of a coefficient to the first rank's": pytest.approx(2.0),
        "norm that clipping saw, step 0": 2.0,
    }


@pytest.mark.parametrize("name", made.HEALTHY)
def test_is_silent_on_healthy_trainings(name):
    assert found_in(made.HEALTHY[name]()) == []


def test_names_it_between_split_layers_from_the_first_step_alone():
    split = ("embed.weight", "layers.0.weight", "head.weight")

    def raw(rank, step, p):
        return made.own_gradient(rank, step, p) if p.path in split or step else {"rms": 0.01}

    def gradient(rank, step, p):
        return {**made.own_gradient(rank, step, p), **({} if p.path in split or step else {"rms": 0.01 * (1 + rank)})}

    run = replace(
        made.MANUAL, loss=lambda rank, step: 2.0, raw_gradient=raw, gradient=gradient, weight=made.own_weight,
        extra=made.summed_in_forward().extra,
    )  # fmt: skip

    assert [(f.severity, f.first_step) for f in found_in(run.facts())] == [("critical", 0)]
