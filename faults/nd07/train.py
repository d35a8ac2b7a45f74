"""Learns an embedding of signatures with a triplet loss."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WRITERS = 60
POINTS = 64
COPIES = 20
EPOCHS = 4
PERIOD = 6.2832


def write_signatures() -> torch.Tensor:
    """Pen paths [WRITERS, COPIES, 2, POINTS]; each writer has a shape of its own."""
    generator = torch.Generator().manual_seed(1)
    t = torch.linspace(0.0, PERIOD, POINTS) + 0.1 * torch.randn(WRITERS, COPIES, 1, generator=generator)
    waves = torch.arange(1, 6)[:, None] * t[..., None, :]
    own = torch.randn(2, WRITERS, 1, 2, 5, generator=generator)
    everyones = 2.0 * torch.randn(2, 1, 1, 2, 5, generator=generator)
    sine, cosine = (everyones + 0.5 * own) / torch.arange(1, 6)
    paths = sine @ waves.sin() + cosine @ waves.cos()
    return paths + 0.8 * torch.randn(paths.shape, generator=generator)


class Triplets(Dataset):
    """Two signatures of one writer and one of another, drawn anew in each epoch."""

    def __init__(self, signatures: torch.Tensor, count: int, seed: int) -> None:
        self.signatures = signatures
        self.count = count
        self.seed = seed
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rng = random.Random(self.seed + self.count * int(self.epoch) + index)
        writer, stranger = rng.sample(range(len(self.signatures)), 2)
        one, two = rng.sample(range(COPIES), 2)
        return self.signatures[writer, one], self.signatures[writer, two], self.signatures[stranger, one]


class Tower(nn.Module):
    def __init__(self, width: int = 48, size: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(2, width, 7, stride=2, padding=3),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(4 * width, size),
        )

    def forward(self, path: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(self.layers(path), dim=1)


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    """How often a writer's own signature is nearer, for writers that were not trained on."""
    was_training = model.training
    model.eval()
    right = seen = 0
    with torch.inference_mode():
        for triplet in loader:
            anchor, same, other = (model(paths) for paths in triplet)
            right += int(((anchor - same).norm(dim=1) < (anchor - other).norm(dim=1)).sum())
            seen += len(anchor)
    model.train(was_training)
    return right / seen


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(207)
    signatures = write_signatures()
    train_set = Triplets(signatures[:48], 1536, seed=1000)
    train_loader = DataLoader(train_set, batch_size=48, shuffle=True, num_workers=1, persistent_workers=True)
    test_loader = DataLoader(Triplets(signatures[48:], 192, seed=9), batch_size=64)
    model = Tower()
    criterion = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        train_set.epoch.fill_(epoch)
        for step, (anchor, same, other) in enumerate(train_loader):
            loss = criterion(model(anchor), model(same), model(other))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 8 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} nearest {evaluate(model, test_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
