"""Clipping of gradients that have the loss scale in them."""

from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.clip_before_unscale import ClipBeforeUnscale
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.trainings import PARAMETERS


def found_in(facts):
    return list(ClipBeforeUnscale().examine(facts))


def with_scaler(*parts):
    return replace(made.WRAPPED, extra=made.both(made.scaler(lambda step: 1024.0), *parts)).facts()


def by_hand(left):
    """A scale of 1024 of the program's own; the optimizer gets a norm of `left`."""
    size = left / np.sqrt(sum(np.prod(p.shape) for p in PARAMETERS))

    def gradient(rank, step, p):
        return {"rms": size, "norm": size * np.sqrt(np.prod(p.shape)), "fingerprint": step}

    extra = made.both(made.wrapping(), made.factor(1024.0), made.clip(limit=1.0, norm=lambda rank: 700.0))
    return replace(made.WRAPPED, gradient=gradient, extra=extra).facts()


def test_names_the_clipping_with_scale_and_norm():
    found = found_in(made.clipped_scaled())

    assert [named(f) for f in found] == [
        Named("clip-before-unscale", "critical", (0, 1), True, "optimizer", "gradient clipping", made.CLIP_SITE, None)
    ]
    assert evidence_of(found) == {
        "clippings of scaled gradients that act": 70.0,
        "of so many clippings that were looked at": 70.0,
        "loss scale": 1024.0,
        "limit": 1.0,
        "norm that clipping saw": 512.0,
        "the same without the scale": 0.5,
    }


def test_sees_it_with_a_scale_of_the_programs_own():
    found = found_in(by_hand(left=1 / 1024))

    assert [(named(f).place, f.first_step) for f in found] == [(made.CLIP_SITE, 0)]


def test_is_silent_where_that_scale_is_taken_out_before():
    assert found_in(by_hand(left=1.0)) == []


def test_is_silent_where_gradients_are_unscaled_first():
    assert found_in(with_scaler(made.clip())) == []


def test_is_silent_about_a_limit_that_is_multiplied_with_the_scale():
    assert found_in(with_scaler(made.clip(limit=1024.0, norm=lambda rank: 2000.0, scale=1024.0, scaled=1))) == []


def test_without_a_scale_there_is_nothing_to_examine():
    with pytest.raises(CannotExamine, match="no loss scale"):
        found_in(replace(made.WRAPPED, extra=made.clip()).facts())
