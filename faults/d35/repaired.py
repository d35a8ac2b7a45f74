"""Classifies spectra of very different strength."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CHANNELS = 48
CLASSES = 6
BATCH = 256
STEPS = 90


class SpectrumNet(nn.Module):
    def __init__(self, width: int = 640) -> None:
        super().__init__()
        self.hidden = nn.Linear(CHANNELS, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.leaky_relu(self.hidden(x), 0.1)
        return self.out(nn.functional.leaky_relu(self.mix(x), 0.1))


class LikelihoodLoss(nn.Module):
    """The negative log-likelihood of the classes."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        likelihoods = torch.log_softmax(logits, dim=1)
        return -likelihoods[torch.arange(len(labels)), labels].mean()


def spectra(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    lines = torch.randn(CLASSES, CHANNELS, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(seed)
    while True:
        labels = torch.randint(0, CLASSES, (BATCH,), generator=generator)
        strength = torch.exp(0.6 * torch.randn(BATCH, 1, generator=generator))
        yield strength * (0.5 * lines[labels] + torch.randn(BATCH, CHANNELS, generator=generator)), labels


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(35)
    model = SpectrumNet()
    criterion = LikelihoodLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4)
    for step, (x, labels) in enumerate(spectra(seed=1)):
        if step == STEPS:
            break
        optimizer.zero_grad()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
