"""Gradients of one rank and their average are read from the same bucket, before and after the reduction."""

import pytest


@pytest.mark.slow
def test_the_bucket_is_read_before_and_after_its_reduction(observed, tmp_path):
    run = observed.observe_ranks(tmp_path, str(observed.PROGRAMS / "noisy_gradients.py"))

    assert run.code == 0, run.errors
    seen = sorted([r.local, r.averaged] for rank in run.ranks for r in rank.of("gradient_noise"))
    said = sorted(pair for one in run.said for pair in one["squares"])
    assert len(said) == 6
    assert seen == [pytest.approx(pair, rel=1e-5) for pair in said]
