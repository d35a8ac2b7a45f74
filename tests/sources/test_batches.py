"""Which batches came, in which order, and what decides about it."""

from contextlib import suppress

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

IMAGES, LABELS = torch.arange(40.0).reshape(20, 2), torch.arange(20) % 3
DATA = TensorDataset(IMAGES, LABELS)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6.0))


class Fails(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5:
            raise OSError("truncated")
        return torch.tensor(index)


def test_each_batch_has_a_record_with_its_order(watched):
    def program():
        for _ in range(2):
            for _ in DataLoader(DATA, batch_size=8, shuffle=False):
                pass

    found = watched(program).of("batch")

    assert [(b.name, b.loader, b.number, b.ordinal, b.samples, b.ascending) for b in found] == [
        ("TensorDataset", loader, 0, ordinal, samples, 1)
        for loader in (1, 2)
        for ordinal, samples in enumerate((8, 8, 4))
    ]
    assert [b.fingerprint for b in found[:3]] == [b.fingerprint for b in found[3:]]
    assert len({b.order for b in found}) == len({b.fingerprint for b in found}) == 3


def test_passes_of_one_loader_are_counted(watched):
    def program():
        loader = DataLoader(DATA, batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(1))
        for _ in range(3):
            list(loader)

    seen = watched(program)

    assert [(b.number, b.ordinal) for b in seen.of("batch")] == [(n, k) for n in range(3) for k in range(2)]
    assert [(p.name, p.number, p.dataset_samples, p.shuffle) for p in seen.of("loader_pass")] == [
        ("RandomSampler", n, 20, 1) for n in range(3)
    ]
    assert len({b.order for b in seen.of("batch")}) == 6


def test_a_distributed_sampler_tells_its_epoch_and_replicas(watched):
    def program():
        sampler = DistributedSampler(DATA, num_replicas=4, rank=1)
        sampler.set_epoch(3)
        list(DataLoader(DATA, batch_size=5, sampler=sampler))

    (found,) = watched(program).of("loader_pass")

    assert (found.name, found.epoch_known, found.epoch, found.replicas, found.shuffle) == (
        "DistributedSampler", 1, 3, 4, 1,
    )  # fmt: skip


def test_indices_belong_to_their_batches_with_workers_too(watched):
    def program():
        loader = DataLoader(DATA, batch_size=4, num_workers=2, persistent_workers=True)
        for batch in loader:
            del batch
            break  # what was asked for ahead of time is never given
        list(loader)
        list(DataLoader(DATA, batch_size=4))

    found = watched(program).of("batch")

    with_workers, alone = found[1:6], found[6:]
    assert [b.order for b in with_workers] == [b.order for b in alone]
    assert [b.fingerprint for b in with_workers] == [b.fingerprint for b in alone]


def test_a_stream_has_no_indices(watched):
    seen = watched(lambda: list(DataLoader(Stream(), batch_size=2)))

    assert [(b.order, b.ascending, b.samples) for b in seen.of("batch")] == [(0, 0, 2)] * 3
    assert [(p.iterable, p.dataset_samples) for p in seen.of("loader_pass")] == [(1, -1)]


def test_labels_are_counted(watched):
    (found, *_) = watched(lambda: list(DataLoader(DATA, batch_size=20))).of("batch_labels")

    assert (found.name, found.distinct, found.low, found.high) == ("1", 3, 7 | 7 << 8 | 6 << 16, 0)


def test_an_error_of_the_dataset_names_its_sample_and_shifts_no_indices(watched):
    def program():
        batches = iter(DataLoader(Fails(), batch_size=4))
        for _ in range(3):
            with suppress(OSError):
                next(batches)
        list(DataLoader(torch.arange(12), batch_size=4))

    seen = watched(program)

    (error,) = seen.of("sample_error")
    assert (error.name, error.index, error.exact, error.position, error.worker) == ("OSError: truncated", 5, 1, 1, 0)
    assert error.site.endswith(":Fails.__getitem__")
    orders = [b.order for b in seen.of("batch")]
    assert orders[:2] == [orders[2], orders[4]]
    assert [w.ended for w in seen.of("batch_wait")] == [0, 0, 0, 0, 0, 0, 1]


def test_an_error_of_the_collate_function_is_none_of_a_sample(watched):
    def fail(samples):
        raise ValueError("unequal sizes")

    def program():
        with suppress(ValueError):
            list(DataLoader(DATA, batch_size=4, collate_fn=fail))

    assert watched(program).of("sample_error") == []


def test_nothing_random_is_consumed(watched):
    def numbers():
        torch.manual_seed(0)
        given = [x.sum() for x, _ in DataLoader(DATA, batch_size=4, shuffle=True)]
        return [*given, torch.rand(1)]

    observed = []
    watched(lambda: observed.extend(numbers()))

    assert observed == numbers()


def test_light_observation_reads_no_batch(watched):
    assert watched(lambda: list(DataLoader(DATA, batch_size=4)), level="light").of("batch") == []
