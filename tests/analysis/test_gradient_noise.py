"""The gradient noise scale from the gradients of ranks and their average."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.gradient_noise import noise_scale


def gradients(noise, truth, *, samples, ranks, steps=400, elements=400, seed=1):
    """Mean squares of one rank's gradient and of the average, in `steps` steps; both vary by `noise` a sample."""
    chance = np.random.default_rng(seed)
    real = chance.normal(size=elements) * truth
    each = real + chance.normal(size=(steps, ranks, elements)) * noise / np.sqrt(samples)
    return (each**2).mean(axis=(1, 2)), (each.mean(axis=1) ** 2).mean(axis=1)


@pytest.mark.parametrize(("noise", "truth", "scale"), [(1.0, 1.0, 1.0), (10.0, 1.0, 100.0), (30.0, 0.5, 3600.0)])
def test_the_scale_is_the_noise_of_a_sample_over_the_gradient(noise, truth, scale):
    small, large = gradients(noise, truth, samples=16, ranks=4)

    found, at_least = noise_scale(small, large, 16, 64)
    assert found == pytest.approx(scale, rel=0.2)
    assert at_least < found


def test_without_a_gradient_only_a_lower_bound_is_given():
    small, large = gradients(1.0, 0.0, samples=16, ranks=2)

    found, at_least = noise_scale(small, large, 16, 32)
    assert found is None
    assert at_least > 32 * 50


def test_the_bound_holds_for_a_few_steps():
    chances = []
    for seed in range(200):
        small, large = gradients(30.0, 0.5, samples=16, ranks=2, steps=9, seed=seed)
        found = noise_scale(small, large, 16, 32)
        chances.append(found is None or found[1] <= 3600)

    assert sum(chances) >= 0.95 * len(chances)


def test_equal_gradients_have_no_noise():
    assert noise_scale(np.ones(5), np.ones(5), 16, 32) is None
    assert noise_scale(np.full(5, np.nan), np.ones(5), 16, 32) is None
