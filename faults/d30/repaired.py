"""Trains a multi-layer perceptron on grey-level histograms."""

from __future__ import annotations

import torch
from torch import nn

BINS = 64
CLASSES = 10
BATCH = 128
EPOCHS = 2
SAMPLES = 50 * BATCH
# Learning-rate factors of single steps; all others have factor 1.
FACTORS = {30: 0.1}


class HistogramNet(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(BINS, width)
        self.relu1 = nn.ReLU()
        self.hidden2 = nn.Linear(width, width)
        self.relu2 = nn.ReLU()
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.hidden1(x))
        return self.out(self.relu2(self.hidden2(x)))


def histograms(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    typical = torch.rand(CLASSES, BINS, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    counts = (typical[labels] + 0.6 * torch.randn(count, BINS, generator=generator)).clamp(0.0, 2.0)
    return counts, labels


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(30)
    x, labels = histograms(SAMPLES, seed=1)
    model = HistogramNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: FACTORS.get(step, 1.0))
    step = 0
    for _ in range(EPOCHS):
        for rows in torch.randperm(SAMPLES).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            scheduler.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    model.eval()
    with torch.no_grad():
        x, labels = histograms(2000, seed=2)
        print(f"accuracy {(model(x).argmax(1) == labels).float().mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
