"""One rank's copy of reduced data that differs now and then."""

from dataclasses import replace

import pytest

from rankscope.analysis.detectors.silent_corruption import SilentCorruption
from rankscope.testing import silent_sync as made
from rankscope.testing.checks import Named, evidence_of, named


def found_in(facts):
    return list(SilentCorruption().examine(facts))


def test_names_the_rank_that_got_zeros_and_the_step():
    found = found_in(made.corrupted())

    assert [named(f) for f in found] == [
        Named("silent-corruption", "critical", (1,), False, "communication", "head.weight", None, None)
    ]
    assert (found[0].first_step, found[0].last_step) == (32, 32)
    assert evidence_of(found) == {
        "sampled steps with a copy that differs": 1.0,
        "largest distance from the peers' copy, head.weight, step 32": 1.0,
    }


def test_infers_it_from_parameters_that_part_one_after_the_other():
    begins = {"embed.weight": 8, "norm.bias": 32, "head.weight": 48}

    def weight(rank, step, p):
        return made.own_weight(rank, step, p) if step >= begins.get(p.path, 1000) else {}

    found = found_in(replace(made.WRAPPED, weight=weight).facts())

    assert [(f.component, f.confidence, f.first_step) for f in found] == [
        ("embed.weight, norm.bias, head.weight", 0.6, 8)
    ]


def test_is_silent_where_all_parameters_part_at_once():
    assert found_in(made.diverged()) == []


def test_is_silent_where_gradients_are_never_averaged():
    assert found_in(made.bypassed()) == []


def test_is_silent_where_a_reduction_was_left_out_on_that_step():
    def gradient(rank, step, p):
        return made.own_gradient(rank, step, p) if step == 32 else {"rms": 0.009}

    def reduces(w, rank, step, t):
        if step != 32:
            made.reduces()(w, rank, step, t)
        else:
            made.reduces(elements=8)(w, rank, step, t)

    assert found_in(replace(made.MANUAL, gradient=gradient, extra=reduces).facts()) == []


@pytest.mark.parametrize("name", made.HEALTHY)
def test_is_silent_on_healthy_trainings(name):
    if name != "a sweep":
        assert found_in(made.HEALTHY[name]()) == []
