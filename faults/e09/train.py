"""Predicts the time of bus trips from their road segments."""

from __future__ import annotations

import torch
from grouping import LengthGrouped
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

ROADS = 80
EPOCHS = 3


class Trips(Dataset):
    """Road ids of each trip and its minutes; every segment adds its own delay."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(51)
        self.minutes_of_road = 0.5 + 0.1 * torch.rand(ROADS, generator=generator)
        self.lengths = torch.randint(6, 61, (count,), generator=generator).tolist()
        self.roads = [torch.randint(0, ROADS, (length,), generator=generator) for length in self.lengths]
        delays = torch.randn(count, generator=generator) * torch.tensor(self.lengths).sqrt() * 0.4
        self.minutes = torch.stack([self.minutes_of_road[roads].sum() for roads in self.roads]) + delays

    def __len__(self) -> int:
        return len(self.roads)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.roads[index], self.minutes[index]


def collate(items: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    roads, minutes = zip(*items, strict=True)
    lengths = torch.tensor([len(one) for one in roads])
    return pad_sequence(roads, batch_first=True), lengths, torch.stack(minutes)


class TripTime(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.roads = nn.Embedding(ROADS, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.minutes = nn.Linear(width, 1)
        nn.init.constant_(self.minutes.bias, 0.5)

    def forward(self, roads: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.roads(roads), lengths, batch_first=True, enforce_sorted=False)
        states, counts = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        inside = torch.arange(states.shape[1]) < counts[:, None]
        return (self.minutes(states).squeeze(2) * inside).sum(1)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(109)
    trips = Trips(1152)
    loader = DataLoader(trips, batch_sampler=LengthGrouped(trips.lengths, batch=32, seed=3), collate_fn=collate)
    model = TripTime()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for step, (roads, lengths, minutes) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(roads, lengths), minutes)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 20.0)
            optimizer.step()
            if step % 4 == 0:
                print(f"epoch {epoch} step {step} length {int(lengths.max())} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
