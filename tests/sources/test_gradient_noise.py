"""Gradients of one rank and their average are read from the same bucket, before and after the reduction."""

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "summed"])
def test_the_bucket_is_read_before_and_after_its_reduction(observed, tmp_path, way):
    run = observed.observe_ranks(tmp_path, str(observed.PROGRAMS / "noisy_gradients.py"), way)

    assert run.code == 0, run.errors
    found = [r for rank in run.ranks for r in rank.of("gradient_noise")]
    said = sorted(pair for one in run.said for pair in one["squares"])
    assert len(said) == 6
    assert {r.buckets for r in found} == {1}  # what Python reduces within a backward is none
    assert sorted([r.local, r.averaged] for r in found) == [pytest.approx(pair, rel=1e-5) for pair in said]


@pytest.mark.slow
def test_what_a_communication_hook_reduces_may_be_anything(observed, tmp_path):
    run = observed.observe_ranks(tmp_path, str(observed.PROGRAMS / "noisy_gradients.py"), "hooked")

    assert run.code == 0, run.errors
    assert [rank.of("gradient_noise") for rank in run.ranks] == [[], []]
