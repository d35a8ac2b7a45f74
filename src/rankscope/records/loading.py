"""How batches come to a rank: the wait on its main thread and the work in its loader workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field


@dataclass(frozen=True, slots=True)
class BatchWait(Record):
    """One `next()` of a DataLoader iterator on the rank's thread."""

    code: ClassVar[int] = 20
    kind: ClassVar[str] = "batch_wait"
    name: str = field("name", "", "class of the dataset", is_name=True, bits=16)
    ordinal: int = field("a", "count", "batches this iterator had given before")
    loader: int = field("c", "", "number of the DataLoader object in this process", bits=16)
    workers: int = field("c", "count", "num_workers", shift=16, bits=12)
    grad: int = field("c", "", "1: autograd was enabled", shift=52, bits=1)
    ended: int = field("c", "", "1: the iterator was exhausted", shift=53, bits=1)


@dataclass(frozen=True, slots=True)
class LoaderStart(Record):
    """One creation of a DataLoader iterator (worker start-up included)."""

    code: ClassVar[int] = 21
    kind: ClassVar[str] = "loader_start"
    name: str = field("name", "", "class of the dataset", is_name=True, bits=16)
    workers: int = field("a", "count", "num_workers")
    loader: int = field("c", "", "number of the DataLoader object in this process", bits=16)
    persistent: int = field("c", "", "1: persistent_workers", shift=16, bits=1)
    reused: int = field("c", "", "1: persistent workers of an epoch before were reused", shift=17, bits=1)
    site: int = field("c", "", "name id of the call-site", shift=32, bits=16)


@dataclass(frozen=True, slots=True)
class Fetch(Record):
    """One batch fetched from the dataset and collated, in a worker or (num_workers=0) on the rank's thread."""

    code: ClassVar[int] = 22
    kind: ClassVar[str] = "fetch"
    name: str = field("name", "", "class of the dataset", is_name=True, bits=16)
    samples: int = field("a", "count", "samples asked for")
    cpu_ns: int = field("b", "ns", "CPU time of the fetching thread")
    worker: int = field("c", "", "worker id + 1; 0: the rank itself", bits=16)
    first_index: int = field("c", "", "first sample index, where it is a number", shift=16, bits=40)


@dataclass(frozen=True, slots=True)
class PendingFetch(Record):
    """The batch that a loader worker was fetching, or had fetched last, when it ended: the fields of `Fetch`."""

    code: ClassVar[int] = 24
    kind: ClassVar[str] = "pending_fetch"
    samples: int = field("a", "count", "samples asked for")
    worker: int = field("c", "", "worker id + 1; 0: the rank itself", bits=16)
    first_index: int = field("c", "", "first sample index, where it is a number", shift=16, bits=40)


@dataclass(frozen=True, slots=True)
class WorkerStart(Record):
    """A loader worker's way from its start to its first fetch (imports, dataset copy, worker_init_fn)."""

    code: ClassVar[int] = 23
    kind: ClassVar[str] = "worker_start"
    name: str = field("name", "", "class of the dataset", is_name=True, bits=16)
    worker: int = field("a", "", "worker id")
