"""Two ranks hold the same dataset, or they do not."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from rankscope.capture.dataset_print import dataset_print


class Images:
    def __init__(self, root="a", seed=0, **more):
        self.root, self.seed = Path(root), seed
        self.lock = threading.Lock()
        self.__dict__.update(more)


def tensors(seed):
    return TensorDataset(torch.randn(100, 4, generator=torch.Generator().manual_seed(seed)))


def test_equal_datasets_have_equal_prints():
    assert dataset_print(Images()) == dataset_print(Images())
    assert dataset_print(tensors(0)) == dataset_print(tensors(0))


def test_a_seed_a_path_a_tensor_an_array_or_a_list_makes_the_difference():
    found = {
        dataset_print(one)
        for one in (
            Images(), Images(seed=1), Images("b"), Images(files=["1"]), Images(files=["2"]), Images(x=np.arange(9)),
            Images(x=np.arange(9) + 1), Images(options={"shard": 1}), Images(options={"shard": 2}), tensors(0),
            tensors(1), Subset(tensors(0), [1, 2]), Subset(tensors(0), [3, 4]), ConcatDataset([tensors(0)]),
            ConcatDataset([tensors(1)]),
        )
    }  # fmt: skip

    assert len(found) == 15


def test_what_refers_to_itself_and_what_is_huge_comes_to_an_end():
    one = Images(many=list(range(1_000_000)))
    one.me = one

    assert dataset_print(one) > 0


def test_none_of_its_code_runs():
    class Hostile:
        def __getattr__(self, name):
            raise AssertionError(name)

        def __repr__(self):
            raise AssertionError

        def __len__(self):
            raise AssertionError

    assert dataset_print(Images(inner=Hostile())) > 0
