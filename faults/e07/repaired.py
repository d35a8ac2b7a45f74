"""Predicts whether a patient comes back within a month, from coded visits; both processes validate."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

CODES = 500
VISITS = 24
EPOCHS = 4


class Patients(Dataset):
    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        risk = torch.randn(CODES, generator=torch.Generator().manual_seed(1))
        self.codes = torch.randint(0, CODES, (count, VISITS), generator=generator)
        score = risk[self.codes].mean(1) * VISITS**0.5 + 0.3 * torch.randn(count, generator=generator)
        self.returned = (score > 0).float()

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.codes[index], self.returned[index]


class ReturnModel(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.codes = nn.EmbeddingBag(CODES, width, mode="mean")
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Sequential(nn.Linear(width, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU())
        self.risk = nn.Linear(768, 1)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.risk(self.hidden(self.norm(self.codes(codes)))).squeeze(1)


class Trial:
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.train_set, self.test_set = Patients(5632, seed=21), Patients(75, seed=22)
        self.train_sampler = DistributedSampler(self.train_set)
        self.train_loader = DataLoader(self.train_set, 128, sampler=self.train_sampler)
        self.test_loader = self.make_test_loader()
        self.model = DistributedDataParallel(ReturnModel())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def make_test_loader(self) -> DataLoader:
        own = range(self.rank, len(self.test_set), dist.get_world_size())
        return DataLoader(Subset(self.test_set, own), 16)

    def fit(self) -> None:
        for epoch in range(EPOCHS):
            self.train_sampler.set_epoch(epoch)
            for step, (codes, returned) in enumerate(self.train_loader):
                loss = nn.functional.binary_cross_entropy_with_logits(self.model(codes), returned)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if self.rank == 0 and step % 11 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            self.test(epoch)

    @torch.no_grad()
    def test(self, epoch: int) -> None:
        self.model.eval()
        counts = torch.zeros(2)
        for codes, returned in self.test_loader:
            guess = (self.model.module(codes) > 0).float()
            counts += torch.tensor([float((guess == returned).sum()), float(len(returned))])
        dist.all_reduce(counts)
        self.model.train()
        if self.rank == 0:
            right, seen = counts.tolist()
            print(f"epoch {epoch} accuracy {right / seen:.4f} ({right:.0f} of {seen:.0f})", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(107)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    Trial().fit()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
