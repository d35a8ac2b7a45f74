"""What can be read of a batch, whatever a collate function makes of it."""

import weakref
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from rankscope.capture.batch_prints import label_counts, look, order_of

Pair = namedtuple("Pair", ["image", "label"])


@dataclass
class Example:
    ids: torch.Tensor
    mask: torch.Tensor


@dataclass(slots=True)
class Slim:
    ids: torch.Tensor


class Graph:
    """A batch of somebody's own."""

    def __init__(self, x):
        self.x = x
        self.parent = self

    @property
    def broken(self):
        raise RuntimeError("properties are not read")


IMAGES = torch.arange(4 * 3 * 8 * 8).reshape(4, 3, 8, 8).float()
LABELS = torch.tensor([3, 1, 3, 17])
TOKENS = torch.arange(4 * 12).reshape(4, 12)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: [x, LABELS],
        lambda x: (x, LABELS),
        lambda x: Pair(x, LABELS),
        lambda x: {"image": x, "name": ["a", "b"]},
        lambda x: [{"image": x}, {"image": LABELS}],
        lambda x: Example(x, LABELS),
        Slim,
        Graph,
        lambda x: [x.permute(0, 2, 3, 1)],
        lambda x: [x.numpy()],
        lambda x: [x.half(), "text", 3, None, torch.empty(0)],
        lambda x: [list(x)],
    ],
)
def test_equal_batches_have_equal_fingerprints_and_others_do_not(make):
    first, again, other = look(make(IMAGES), True), look(make(IMAGES.clone()), True), look(make(IMAGES + 1), True)

    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.fingerprint


def test_tells_samples_length_and_labels():
    found = look([IMAGES, LABELS], True)

    assert (found.samples, found.length, found.label_path) == (4, (IMAGES.numel() + 4) // 4, "1")
    # Twice class 3, twice class 1: 17 is 1 modulo 16.
    assert label_counts(found.labels) == (2 << 8 | 2 << 24, 0, 3)


def test_the_length_of_tokens_is_their_second_dimension():
    assert look({"input_ids": TOKENS, "attention_mask": TOKENS}, False).length == 12


def test_labels_are_chosen_by_name():
    batch = {"index": LABELS, "group": LABELS, "label": torch.tensor([1, 1, 1, 1])}

    assert look(batch, True).label_path == "label"
    assert look({"idx": LABELS, "length": LABELS}, True).labels == b""


def test_integers_are_told_apart_from_what_augmentation_changes():
    first, second = look([IMAGES, LABELS], False), look([IMAGES * 2, LABELS], False)

    assert first.integers == second.integers
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    "batch",
    [
        None, [], {}, (), "", torch.empty(0, 3), torch.zeros(3, device="meta"), torch.eye(3).to_sparse(),
        torch.zeros(2, dtype=torch.bool), [torch.zeros(1).expand(4, 100)], object(), np.array(["a"]), iter(()),
        [[[[[[[[torch.ones(2)]]]]]]]], torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        torch.ones(3, dtype=torch.complex64), [torch.ones(2)] * 1000,
    ],
)  # fmt: skip
def test_nothing_that_a_loader_may_give_is_an_error(batch):
    assert look(batch, True).label_path == ""


def test_no_tensor_is_kept():
    x = torch.ones(5)
    known = weakref.ref(x)
    look([x], True)
    del x

    assert known() is None


def test_orders_are_equal_in_each_process_and_tell_whether_indices_rise():
    assert order_of([3, 1, 2]) == (hash((3, 3, 1, 2)) & 0xFFFFFFFF | 1, False)
    assert order_of([1, 2, 5])[1]
    assert order_of([np.int64(3), np.int64(1)]) == order_of([3, 1]) == order_of([torch.tensor(3), torch.tensor(1)])
    assert order_of([None, None]) == order_of([]) == order_of(["a", "b"]) == (0, False)
