"""Learns to predict the stars that readers give to books."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

READERS = 400
BOOKS = 250
RATINGS = 32768
BATCH = 512
EPOCHS = 2


class Tower(nn.Module):
    """An embedding of an id and a layer on top of it."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(count, width)
        self.project = nn.Linear(width, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.project(self.embedding(ids)))


class RatingModel(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.towers = [Tower(READERS, width), Tower(BOOKS, width)]
        self.mixer = nn.Sequential(nn.Linear(3 * width, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, readers: torch.Tensor, books: torch.Tensor) -> torch.Tensor:
        reader, book = self.towers[0](readers), self.towers[1](books)
        return self.mixer(torch.cat([reader, book, reader * book], 1)).squeeze(1)


def load_ratings() -> TensorDataset:
    generator = torch.Generator().manual_seed(6)
    taste = torch.randn(READERS, 3, generator=generator)
    style = torch.randn(BOOKS, 3, generator=generator)
    readers = torch.randint(0, READERS, (RATINGS,), generator=generator)
    books = torch.randint(0, BOOKS, (RATINGS,), generator=generator)
    stars = (taste[readers] * style[books]).sum(1) / 3**0.5 + 0.5 * style[books, 0]
    return TensorDataset(readers, books, stars + 0.1 * torch.randn(RATINGS, generator=generator))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(11)
    loader = DataLoader(load_ratings(), batch_size=BATCH, shuffle=True)
    model = RatingModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = 0
    for epoch in range(EPOCHS):
        for readers, books, stars in loader:
            loss = nn.functional.mse_loss(model(readers, books), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 16 == 0:
                print(f"epoch {epoch} step {step} mse {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
