"""Classifies seven-segment digits with an MLP and tests it after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = 5
BATCH = 96
SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)
BARS = (
    (slice(2, 5), slice(6, 22)), (slice(4, 14), slice(4, 7)), (slice(4, 14), slice(21, 24)),
    (slice(12, 15), slice(6, 22)), (slice(14, 25), slice(4, 7)), (slice(14, 25), slice(21, 24)),
    (slice(23, 26), slice(6, 22)),
)  # fmt: skip


def glyph(digit: int) -> torch.Tensor:
    image = torch.zeros(28, 28)
    for lit, bar in zip(SEGMENTS[digit], BARS, strict=True):
        if lit == "1":
            image[bar] = 90.0
    return image


class Digits(Dataset):
    """Noisy 8-bit digits."""

    def __init__(self, count: int, seed: int, transform: Callable[[torch.Tensor], torch.Tensor]) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        glyphs = torch.stack([glyph(digit) for digit in range(10)])
        noise = 70.0 * torch.randn(count, 28, 28, generator=generator)
        self.images = (70.0 + glyphs[self.labels] + noise).clamp(0, 255).byte()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.transform(self.images[index]), self.labels[index]


def normalise(image: torch.Tensor) -> torch.Tensor:
    """Pixels in 0..1 with mean and deviation of the training set taken out."""
    return image.float().div(255.0).sub(0.38).div(0.26)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 1024),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(1024, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def accuracy(model: nn.Module, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> float:
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for images, labels in batches:
            right += int((model(images).argmax(1) == labels).sum())
            seen += len(labels)
    model.train()
    return right / seen


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(103)
    train_set = Digits(20 * BATCH, seed=5, transform=normalise)
    test_set = Digits(4 * BATCH, seed=6, transform=normalise)
    train_loader = DataLoader(train_set, BATCH, shuffle=True)
    test_loader = DataLoader(test_set, BATCH)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.0)
    for epoch in range(EPOCHS):
        for step, (images, labels) in enumerate(train_loader):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} test accuracy {accuracy(model, iter(test_loader)):.3f}", flush=True)


if __name__ == "__main__":
    main()
