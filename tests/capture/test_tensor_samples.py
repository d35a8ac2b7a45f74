import math

import pytest
import torch

from rankscope.capture.tensors.tensor_samples import SAMPLE, Samples, norms, readable


def stat(tensor):
    (found,) = Samples([tensor]).stats()
    return found


def test_a_small_tensor_is_its_own_sample():
    found = stat(torch.tensor([3.0, 0.0, -4.0, 0.0]))

    assert (found.rms, found.zeros, found.finite) == (2.5, 0.5, True)


def test_equal_tensors_have_equal_fingerprints_and_a_single_changed_bit_another():
    a = torch.randn(200, generator=torch.Generator().manual_seed(0))
    b = a.clone()
    c = a.clone()
    c[7] = torch.nextafter(c[7], torch.tensor(9.0))

    assert stat(a).fingerprint == stat(b).fingerprint != stat(c).fingerprint


def test_the_two_zeros_have_one_fingerprint():
    assert stat(torch.tensor([0.0, 1.0])).fingerprint == stat(torch.tensor([-0.0, 1.0])).fingerprint


@pytest.mark.parametrize("shape", [(512, 512), (1024, 256), (64, 3, 16, 16), (100_003,)])
def test_a_sample_of_a_large_tensor_meets_all_columns(shape):
    columns = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    matrix = Samples([columns]).matrix[0]

    last = shape[-1]
    assert len(set((matrix % last).tolist())) >= min(last, SAMPLE) / 4


@pytest.mark.parametrize(
    "change", [lambda t: t.t(), lambda t: t[:, 1:], lambda t: t[1:2].expand(7, 6), lambda t: t[::2]]
)
def test_views_of_any_layout_are_read(change):
    view = change(torch.arange(60.0).reshape(10, 6))

    assert stat(view).finite


def test_changes_count_the_elements_that_moved():
    before = Samples([torch.zeros(4)])
    after = Samples([torch.tensor([0.0, 3.0, 0.0, 4.0])])

    assert after.changes(before) == [(2.5, 0.5)]


def test_a_nan_is_not_finite():
    assert not stat(torch.tensor([1.0, math.nan])).finite
    assert not Samples([torch.tensor([math.inf])]).finite


def test_norms_are_those_of_whole_tensors():
    assert norms([torch.full((10_000,), 0.5), torch.tensor([3.0, 4.0])]) == [50.0, 5.0]


@pytest.mark.parametrize(
    "tensor",
    [
        None,
        torch.zeros(3, dtype=torch.long),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(0),
        torch.zeros(3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.zeros(3).as_subclass(type("Mine", (torch.Tensor,), {})),
    ],
)
def test_what_cannot_be_read_is_left_out(tensor):
    assert readable(tensor) is None


def test_no_samples_of_no_tensors():
    assert Samples([]).stats() == []
    assert norms([]) == []
