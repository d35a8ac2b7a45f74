"""What batches consist of, from real loaders and models."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from rankscope.capture.tensors.batch_tensors import tensors_in
from rankscope.capture.tensors.feature_ranges import FeatureRanges, Known
from rankscope.capture.tensors.tensor_values import Values, few, plain, values_of

Pair = namedtuple("Pair", "x y")


@dataclass
class Sample:
    image: torch.Tensor
    text: str


def test_finds_the_tensors_of_any_batch():
    one = torch.zeros(1)
    batch = {
        "images": one, "names": ["a", "b"], 3: Pair(one, [one, {"deep": one}]), "sample": Sample(one, "cat"),
        "empty": [], "nothing": None,
    }  # fmt: skip

    assert [path for path, _ in tensors_in(batch, "batch")] == [
        "batch['images']", "batch[3].x", "batch[3].y[0]", "batch[3].y[1]['deep']", "batch['sample'].image",
    ]  # fmt: skip


def test_calls_nothing_of_the_users():
    class Lazy(dict):
        def __getitem__(self, key):
            raise AssertionError("read")

        def items(self):
            raise AssertionError("read")

    class Odd:
        @property
        def tensor(self):
            raise AssertionError("read")

    assert [path for path, _ in tensors_in([Lazy(a=torch.zeros(1)), Odd()], "batch")] == ["batch[0]['a']"]


def test_follows_no_circle_and_no_endless_list():
    circle = []
    circle.append(circle)
    many = [torch.zeros(1)] * 1000

    assert [path for path, _ in tensors_in((circle, many), "b")] == ["b[1][0]", "b[1][1]", "b[1][2]", "b[1][3]"]


def test_values_of_a_sample():
    values = values_of(torch.tensor([[0.0, 1.5], [-2.0, float("inf")]]))

    assert values == Values(
        pytest.approx(-1 / 6), pytest.approx(1.433721), -2.0, 1.5, 0.25, 0.25, False, False
    )


def test_values_of_what_is_never_finite_of_whole_numbers_and_of_subnormals():
    nothing = values_of(torch.tensor([float("nan")]))
    pixels = values_of(torch.tensor([0.0, 255.0]))
    tiny = values_of(torch.tensor([1e-40, 1.0]))

    assert (nothing.non_finite, pixels.integral, tiny.subnormal, tiny.integral) == (1.0, True, True, False)


def test_a_sample_of_what_does_not_lie_in_one_piece():
    assert few(torch.arange(6).reshape(2, 3).T, most=3).tolist() == [0, 4]


def test_reads_no_tensor_that_would_have_to_be_waited_for():
    odd = [
        torch.empty(2, device="meta"), torch.empty(0), torch.zeros(2, dtype=torch.complex64), "text", None,
        torch.zeros(2, 2).to_sparse(),
    ]  # fmt: skip

    assert [plain(value) for value in odd] == [None] * len(odd)


def test_features_that_never_varied():
    ranges = FeatureRanges()
    ranges.add((1, "x"), torch.tensor([[1.0, 7.0, 0.0], [2.0, 7.0, 3.0]]))
    known = ranges.add((1, "x"), torch.tensor([[3.0, 7.0, 0.0]]))

    assert known == Known(features=3, constant=1, first=1, value=7.0, zeros=0.5, samples=3, batches=2)
    assert ranges.add((1, "y"), torch.zeros(2, 3, 4)) is None
    assert ranges.add((1, "z"), torch.zeros(2, 3, dtype=torch.int64)) is None


def test_batches_and_inputs_are_told_apart_by_who_got_them(watched):
    def train():
        data = TensorDataset(torch.arange(48.0).reshape(16, 3), torch.arange(16) % 2)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for x, y in DataLoader(data, batch_size=8):
            torch.nn.functional.cross_entropy(model(x / 47), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, _ in DataLoader(data, batch_size=8):
                model(x)

    seen = watched(train).of("batch_tensor")

    told = [(s.name, s.origin, s.loader, s.training, s.grad, s.most) for s in seen if s.step != 1]
    assert told == [
        ("batch[0]", 0, 1, 0, 1, 23.0),
        ("batch[1]", 0, 1, 0, 1, 1.0),
        ("1", 2, 0, 1, 1, pytest.approx(23 / 47)),
        ("input[0]", 1, 0, 1, 1, pytest.approx(23 / 47)),
        ("batch[0]", 0, 2, 0, 0, 23.0),
        ("batch[1]", 0, 2, 0, 0, 1.0),
        ("1", 2, 0, 0, 0, 23.0),
        ("input[0]", 1, 0, 0, 0, 23.0),
        ("batch[0]", 0, 2, 0, 0, 47.0),
        ("batch[1]", 0, 2, 0, 0, 1.0),
    ]


def test_an_evaluation_in_a_step_that_is_not_sampled_is_seen(watched):
    def train():
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(7):
            model(torch.full((2, 3), float(step))).sum().backward()
            optimizer.step()
            if step == 5:
                model.eval()
                with torch.no_grad():
                    model(torch.full((2, 3), 100.0))
                    model(torch.full((2, 3), 200.0))
                model.train()

    seen = watched(train).of("batch_tensor")

    assert [(s.step, s.training, s.most) for s in seen if s.origin == 1] == [
        (0, 1, 0.0), (1, 1, 1.0), (2, 1, 2.0), (3, 1, 3.0), (4, 1, 4.0), (6, 0, 100.0), (6, 1, 6.0),
    ]  # fmt: skip
