"""Batches, their tensors and indices, and the state of random generators: what a rank trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field

MOST_PASSES, MOST_LOADERS = 1023, 255
"""Passes and loaders from these on share one number and cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Batch(Record):
    """One batch that a DataLoader gave to the rank, as a few of its elements and of its sample indices show it."""

    code: ClassVar[int] = 70
    kind: ClassVar[str] = "batch"
    name: str = field("name", "", "class of the dataset", is_name=True, bits=16)
    fingerprint: int = field("a", "", "of the sampled contents: equal for equal batches; 0: not read", bits=32)
    samples: int = field("a", "count", "samples in it, at most 65535; 0: not known", shift=32, bits=16)
    order: int = field("b", "", "of its sample indices, in their order; 0: not known", bits=32)
    integers: int = field(
        "b", "", "of its tensors of integers (labels, tokens), which augmentation leaves alone; 0: none",
        shift=32, bits=32,
    )  # fmt: skip
    ordinal: int = field("c", "count", "batches of this pass before", bits=20)
    number: int = field("c", "count", "passes over this loader before, at most MOST_PASSES", shift=20, bits=10)
    loader: int = field("c", "", "number of the DataLoader object, at most MOST_LOADERS", shift=30, bits=8)
    length: int = field(
        "c", "", "second dimension of its first tensor of integers that has two; else elements per sample",
        shift=38, bits=22,
    )  # fmt: skip
    grad: int = field("c", "", "1: autograd was enabled", shift=60, bits=1)
    ascending: int = field("c", "", "1: the sample indices rise", shift=61, bits=1)


@dataclass(frozen=True, slots=True)
class Inputs(Record):
    """What a training forward got on a sampled step, where no DataLoader gave a batch."""

    code: ClassVar[int] = 97
    kind: ClassVar[str] = "inputs"
    name: str = field("name", "", "model", is_name=True, bits=16)
    fingerprint: int = field("a", "", "of the sampled contents: equal for equal inputs", bits=32)


@dataclass(frozen=True, slots=True)
class LoaderPass(Record):
    """The first batch of a pass over a DataLoader: what decides about the order of its samples."""

    code: ClassVar[int] = 71
    kind: ClassVar[str] = "loader_pass"
    name: str = field("name", "", "class of the sampler", is_name=True, bits=16)
    dataset_samples: int = field("a", "count", "length of the dataset; -1: not known")
    epoch: int = field("b", "", "`epoch` of the sampler", bits=32)
    replicas: int = field("b", "count", "`num_replicas` of the sampler; 0: it has none", shift=32, bits=16)
    epoch_known: int = field("b", "", "1: the sampler has an epoch", shift=48, bits=1)
    shuffle: int = field("b", "", "1: the sampler says that it shuffles", shift=49, bits=1)
    iterable: int = field("b", "", "1: an IterableDataset", shift=50, bits=1)
    number: int = field("c", "count", "passes over this loader before, at most MOST_PASSES", shift=20, bits=10)
    loader: int = field("c", "", "number of the DataLoader object, at most MOST_LOADERS", shift=30, bits=8)
    dataset_print: int = field("c", "", "fingerprint of the dataset before its first pass; 0: not taken",
                               shift=38, bits=24)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BatchLabels(Record):
    """Class labels of some batches: a sample of at most 64 of them, counted by the label modulo 16."""

    code: ClassVar[int] = 72
    kind: ClassVar[str] = "batch_labels"
    name: str = field("name", "", "where in the batch they stand", is_name=True, bits=16)
    low: int = field("a", "", "counts of labels 0 to 7 (modulo 16), eight bits each")
    high: int = field("b", "", "counts of labels 8 to 15 (modulo 16), eight bits each")
    ordinal: int = field("c", "count", "batches of this pass before", bits=20)
    number: int = field("c", "count", "passes over this loader before, at most MOST_PASSES", shift=20, bits=10)
    loader: int = field("c", "", "number of the DataLoader object, at most MOST_LOADERS", shift=30, bits=8)
    distinct: int = field("c", "count", "different labels in the sample (modulo 256)", shift=38, bits=8)
    grad: int = field("c", "", "1: autograd was enabled", shift=60, bits=1)


@dataclass(frozen=True, slots=True)
class RandomState(Record):
    """A random generator in a loader worker, before its first fetch and after the first ones."""

    code: ClassVar[int] = 73
    kind: ClassVar[str] = "random_state"
    name: str = field("name", "", "`Class.attribute` that holds it; `numpy`, `random`, `torch`", is_name=True, bits=16)
    state: int = field("a", "", "fingerprint of its whole state: equal for generators that draw the same")
    stream: int = field("b", "", "fingerprint of what stays while it draws (key, seed); 0: nothing does", bits=32)
    place: int = field("b", "", "name id of the line of the dataset that is asked for a sample", shift=32, bits=16)
    worker: int = field("c", "", "worker id", bits=16)
    fetches: int = field("c", "count", "fetches of this worker before", shift=16, bits=8)
    held: int = field("c", "", "1: an object of the program's; 0: the generator of a library", shift=24, bits=1)
    iterable: int = field("c", "", "1: an IterableDataset", shift=25, bits=1)


@dataclass(frozen=True, slots=True)
class SampleError(Record):
    """An exception that came out of the dataset, for one sample where that can be told."""

    code: ClassVar[int] = 74
    kind: ClassVar[str] = "sample_error"
    name: str = field("name", "", "`Type: message`", is_name=True, bits=16)
    index: int = field("a", "", "index of the sample, or of the first one of the batch; -1: no number")
    site: int = field("b", "", "name id of the innermost line of the user's that raised it", bits=16)
    dataset: int = field("b", "", "name id of the dataset's class", shift=16, bits=16)
    fetches: int = field("b", "count", "fetches of this process before", shift=32, bits=31)
    worker: int = field("c", "", "worker id + 1; 0: the rank itself", bits=16)
    exact: int = field("c", "", "1: `index` is that sample's; 0: of the batch that begins with it", shift=16, bits=1)
    position: int = field("c", "count", "samples of the batch that were read before", shift=17, bits=20)
