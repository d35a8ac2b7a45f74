"""Made-up trainings by what their ranks read: shuffled and split as it should be, and each way in which it is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Tables, make_tables
from rankscope.records.batches import Batch, BatchLabels, LoaderPass, RandomState, SampleError
from rankscope.records.host import CaughtException
from rankscope.records.loading import BatchWait, Fetch, LoaderStart
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Call
from rankscope.testing.trainings import BEGIN_NS, MS, STEP_NS, Training, fingerprint
from rankscope.testing.writer import Writer

TRAIN = "/home/user/train.py:30:main"
VALIDATE = "/home/user/train.py:60:validate"
GETITEM = "/home/user/data.py:12:Images.__getitem__"
EVALUATED = 40
"""The step before which an evaluation runs."""
MASK = (1 << 32) - 1
PLAIN = Training()


def mixed(rank: int, epoch: int, ordinal: int) -> list[int]:
    """Labels of ten classes by chance."""
    chance = random.Random(f"{rank}/{epoch}/{ordinal}")
    return [chance.randrange(10) for _ in range(16)]


@dataclass(frozen=True)
class Reading:
    """What the ranks of a made-up training read. The functions get (rank, epoch, ordinal) of a batch."""

    ranks: int = 2
    epochs: int = 3
    batches: int = 20
    """In an epoch."""
    samples: int = 16
    dataset: str = "Images"
    sampler: str = "DistributedSampler"
    iterable: bool = False
    replicas: int = 2
    epoch: Callable[[int], int] = lambda epoch: epoch
    """Of the sampler."""
    order: Callable[[int, int, int], object] = lambda rank, epoch, ordinal: (rank, epoch, ordinal)
    """What decides about the sample indices; None: there are none."""
    contents: Callable[[int, int, int], object] = lambda rank, epoch, ordinal: (rank, epoch, ordinal)
    integers: Callable[[int, int, int], object] = lambda rank, epoch, ordinal: (rank, epoch, ordinal)
    ascending: bool = False
    length: Callable[[int, int, int], int] = lambda rank, epoch, ordinal: 768
    labels: Callable[[int, int, int], Sequence[int]] | None = mixed
    dataset_print: Callable[[int], int] = lambda rank: 77
    evaluated: tuple[int, int] | None = None
    """Samples of a dataset, and those that each rank reads of it in an evaluation."""
    workers: tuple[int, ...] = ()
    """Loader workers of each epoch (their states are given by `states`)."""
    states: Callable[[int, int, int], Sequence[object]] = lambda rank, epoch, worker: ()
    """(rank, epoch, worker) -> states of the dataset's generator before the first fetch, after it, and so on."""
    calls: tuple[tuple[int, str], ...] = ()
    """(step, what is called before it)."""
    restarts: int = 0
    """Steps after which the training begins a new pass over the loader, in the middle of the one before; 0: never."""
    training: Training = PLAIN

    def facts(self) -> Facts:
        return Facts(self.tables())

    def tables(self) -> Tables:
        training = replace(self.training, ranks=self.ranks, steps=self.epochs * self.batches, extra=self._extra)
        return joined(training.tables(), [w for r in range(self.ranks) for w in self._workers(r)])

    def _at(self, step: int) -> tuple[int, int]:
        """(pass, ordinal) of the batch of a step."""
        if self.restarts and step >= self.restarts:
            before = -(-self.restarts // self.batches)
            return before + (step - self.restarts) // self.batches, (step - self.restarts) % self.batches
        return step // self.batches, step % self.batches

    def _extra(self, w: Writer, rank: int, step: int, begin_ns: int) -> None:
        for i, (at, name) in enumerate(self.calls):
            if at == step:
                w.put(Call, begin_ns + i, begin_ns + i, step, name=name, site=TRAIN, count=1)
        if self.evaluated is not None and step == EVALUATED:
            self._evaluate(w, step, begin_ns + 1000)
        epoch, ordinal = self._at(step)
        t = begin_ns + MS // 2
        if not ordinal:
            self._begin(w, rank, step, t - 20, epoch)
        order = self.order(rank, epoch, ordinal)
        w.put(
            Batch, t, t, step, name=self.dataset, fingerprint=_short(self.contents(rank, epoch, ordinal)),
            samples=self.samples, order=_short(order) if order is not None else 0,
            integers=_short(self.integers(rank, epoch, ordinal)), ordinal=ordinal, number=epoch, loader=1,
            length=self.length(rank, epoch, ordinal), grad=1, ascending=int(self.ascending),
        )  # fmt: skip
        if self.labels is not None:
            _put_labels(w, t, step, self.labels(rank, epoch, ordinal), ordinal=ordinal, number=epoch, loader=1)
        w.put(BatchWait, t - 10, t, step, name=self.dataset, ordinal=ordinal, loader=1, grad=1)
        if ordinal == self.batches - 1:
            t = begin_ns + STEP_NS
            w.put(BatchWait, t - 100, t - 50, step + 1, name=self.dataset, loader=1, grad=1, ended=1)

    def _begin(self, w: Writer, rank: int, step: int, t: int, epoch: int) -> None:
        w.put(LoaderStart, t - 10, t, step, name=self.dataset, workers=len(self.workers), loader=1, site=TRAIN)
        w.put(
            LoaderPass, t, t, step, name=self.sampler, dataset_samples=-1 if self.iterable else 640,
            epoch=self.epoch(epoch), epoch_known=1, replicas=self.replicas, shuffle=1, iterable=int(self.iterable),
            number=epoch, loader=1, dataset_print=self.dataset_print(rank),
        )  # fmt: skip

    def _evaluate(self, w: Writer, step: int, t: int) -> None:
        assert self.evaluated is not None
        of, mine = self.evaluated
        w.put(LoaderStart, t, t + 10, step, name="Pictures", loader=2, site=VALIDATE)
        w.put(LoaderPass, t + 20, t + 20, step, name="DistributedSampler", dataset_samples=of, replicas=2, loader=2)
        for ordinal, first in enumerate(range(0, mine, 8)):
            at = t + 30 + 10 * ordinal
            w.put(
                Batch, at, at, step, name="Pictures", samples=min(8, mine - first), order=7, ordinal=ordinal, loader=2,
                ascending=1, fingerprint=9 + ordinal,
            )  # fmt: skip
        w.put(BatchWait, t + 900, t + 901, step, name="Pictures", loader=2, ended=1)

    def _workers(self, rank: int) -> list[Writer]:
        found = []
        for epoch in range(self.epochs if self.workers else 0):
            began = BEGIN_NS + epoch * self.batches * STEP_NS + MS // 2 - 25
            for worker in self.workers:
                w = worker_of(rank, epoch, worker, began)
                for fetches, state in enumerate(self.states(rank, epoch, worker)):
                    w.put(
                        RandomState, began + fetches, began + fetches, fetches, name="Images.rng", held=1,
                        state=fingerprint("state", state) >> 4, stream=_short("stream"), place=GETITEM, worker=worker,
                        fetches=fetches, iterable=int(self.iterable),
                    )  # fmt: skip
                found.append(w)
        return found


def worker_of(rank: int, epoch: int, worker: int, began_ns: int) -> Writer:
    """A loader worker of a rank of a made-up training."""
    pid = 5000 + 100 * rank + 10 * epoch + worker
    return Writer(
        Process(pid, role="loader-worker", rank=rank, world_size=2, parent=1000 + rank, worker=worker,
                started_ns=began_ns)
    )  # fmt: skip


def joined(tables: Tables, workers: Sequence[Writer]) -> Tables:
    """A run's tables with what further processes wrote."""
    if not workers:
        return tables
    rows = np.array([row for w in workers for row in w.rows], ROW_DTYPE)
    more = make_tables(rows, [p for w in workers for p in w.payloads()])
    both = {**tables.rows}
    for kind, found in more.rows.items():
        known = both.get(kind)
        every = found if known is None else np.concatenate([known, found])
        both[kind] = every[np.argsort(every["time_ns"], kind="stable")]
    return replace(
        tables, rows=both, names={**tables.names, **more.names}, processes={**tables.processes, **more.processes}
    )


def one_class(rank: int, epoch: int, ordinal: int) -> list[int]:
    """Labels of data that is stored class by class: ten classes of two batches each."""
    return [ordinal // 2] * 16


def lengths_sorted(rank: int, epoch: int, ordinal: int) -> int:
    """Long to short in groups of ten batches."""
    return 512 - 40 * (ordinal % 10) - random.Random(f"{rank}/{epoch}/{ordinal}").randrange(10)


def lengths_mixed(rank: int, epoch: int, ordinal: int) -> int:
    """Groups of similar length in random order."""
    return random.Random(f"{rank}/{epoch}/{ordinal}").randrange(64, 512)


def _put_labels(w: Writer, t: int, step: int, labels: Sequence[int], **where: int) -> None:
    words = [0, 0]
    for label in labels:
        words[label % 16 // 8] += 1 << 8 * (label % 8)
    low, high = (word - (1 << 64) if word >> 63 else word for word in words)
    w.put(BatchLabels, t, t, step, name="1", low=low, high=high, distinct=len(set(labels)), grad=1, **where)


def _short(of: object) -> int:
    return (fingerprint(of) >> 20) & MASK | 1


# -- faults ------------------------------------------------------------------------------------------------------------

READING = Reading()
SAME = replace(
    READING,
    dataset="Stream", sampler="_InfiniteConstantSampler", iterable=True, replicas=0,
    order=lambda rank, epoch, ordinal: None,
    contents=lambda rank, epoch, ordinal: (epoch, ordinal),
    integers=lambda rank, epoch, ordinal: (epoch, ordinal),
    labels=None,
)  # fmt: skip
STUCK = replace(
    READING,
    epoch=lambda epoch: 0,
    order=lambda rank, epoch, ordinal: (rank, ordinal),
    contents=lambda rank, epoch, ordinal: (rank, ordinal),
)
COPIED = replace(
    READING, workers=(0, 1), states=lambda rank, epoch, worker: [("seed", fetches) for fetches in range(3)]
)
UNSHUFFLED = replace(
    READING,
    order=lambda rank, epoch, ordinal: (rank, ordinal),
    ascending=True,
    labels=one_class,
)
SORTED = replace(READING, length=lengths_sorted, labels=None)
RESUMED = replace(
    READING,
    sampler="SeededSampler",
    replicas=0,
    order=lambda rank, epoch, ordinal: (rank, epoch % 2, ordinal),
    contents=lambda rank, epoch, ordinal: (rank, epoch % 2, ordinal),
    epochs=2,
    restarts=14,
    calls=(
        (14, "torch.save /tmp/c.pt with optimizer"),
        (14, "torch.load /tmp/c.pt with optimizer"),
        (14, "Module.load_state_dict"),
        (14, "Optimizer.load_state_dict"),
    ),
)


def resumed() -> Facts:
    """After 14 of 20 batches a new pass begins with the first batch once more."""
    same = replace(
        RESUMED,
        order=lambda rank, epoch, ordinal: (rank, 0 if epoch < 2 else epoch, ordinal),
        contents=lambda rank, epoch, ordinal: (rank, 0 if epoch < 2 else epoch, ordinal),
    )
    return same.facts()


def shifted(rank: int, epoch: int, ordinal: int) -> list[int]:
    """Of ten classes only the last five, from batch 10 of the second epoch on, on rank 1."""
    found = mixed(rank, epoch, ordinal)
    return [5 + label % 5 for label in found] if rank == 1 and (epoch, ordinal) >= (1, 10) else found


def unreadable(*, caught: bool = False) -> Facts:
    """Sample 123 raises in a worker of rank 1; the program goes on with the next batch."""
    reading = replace(READING, workers=(0, 1))
    workers = [reading._workers(rank) for rank in range(2)]
    w = workers[1][1]
    for i in range(8):
        t = BEGIN_NS + (2 * i + 1) * STEP_NS
        w.put(Fetch, t, t + MS, i, name="Images", samples=16, cpu_ns=MS, worker=2, first_index=100 + i)
        if i == 5:
            error = {"name": "OSError: image file is truncated", "site": GETITEM}
            if caught:
                w.put(CaughtException, t + MS // 2, t + MS // 2, i, **error)
            else:
                w.put(
                    SampleError, t + MS // 2, t + MS // 2, i, **error, index=123, dataset="Images", fetches=i, worker=2,
                    exact=1, position=3,
                )  # fmt: skip
    training = replace(Training(), ranks=2, steps=60, extra=reading._extra)
    return Facts(joined(training.tables(), [one for mine in workers for one in mine]))


FAULTS: dict[str, Callable[[], Facts]] = {
    "duplicate-data-across-ranks": SAME.facts,
    "sampler-epoch-not-set": STUCK.facts,
    "worker-rng-duplicated": COPIED.facts,
    "unshuffled-data": UNSHUFFLED.facts,
    "length-sorted-data": SORTED.facts,
    "evaluation-duplicates": replace(READING, evaluated=(49, 25)).facts,
    "unreadable-sample": unreadable,
    "resume-discontinuity": resumed,
    "class-shift": replace(READING, labels=shifted).facts,
}

HEALTHY: dict[str, Callable[[], Facts]] = {
    "data that is shuffled and split": READING.facts,
    "one rank that reads alone": replace(READING, ranks=1, training=Training(wrapper="")).facts,
    "a stream that is split by rank": replace(
        SAME, contents=lambda rank, epoch, ordinal: (rank, epoch, ordinal), integers=READING.integers
    ).facts,
    "one fixed batch": replace(
        SAME, contents=lambda rank, epoch, ordinal: 1, integers=lambda rank, epoch, ordinal: 1
    ).facts,
    "shards with the same indices": replace(READING, order=lambda rank, epoch, ordinal: (epoch, ordinal)).facts,
    "parts of their own whose labels follow the index": replace(
        SAME, contents=lambda rank, epoch, ordinal: (rank, epoch, ordinal), dataset_print=lambda rank: 77 + rank
    ).facts,
    "data that is stored well mixed and read in its order": replace(
        READING, order=lambda rank, epoch, ordinal: (rank, ordinal), ascending=True
    ).facts,
    "workers that are seeded": replace(
        READING, workers=(0, 1), states=lambda rank, epoch, worker: [(epoch, worker, fetches) for fetches in range(3)]
    ).facts,
    "a generator that the workers never use": replace(
        READING, workers=(0, 1), states=lambda rank, epoch, worker: ["seed"] * 3
    ).facts,
    "groups of similar length in random order": replace(READING, length=lengths_mixed).facts,
    "each rank evaluates everything": replace(READING, evaluated=(49, 49)).facts,
    "an evaluation that is split evenly": replace(READING, evaluated=(50, 25)).facts,
    "a few classes in each batch": replace(
        READING, labels=lambda rank, epoch, ordinal: [c for c in mixed(rank, epoch, ordinal)[:2] for _ in range(8)]
    ).facts,
    "resumed where it was": replace(RESUMED, order=READING.order, contents=READING.contents).facts,
}
