"""Trains a small image classifier and validates the running average of its weights."""

from __future__ import annotations

import copy

import torch
from torch import nn

STEPS = 100
BATCH = 32
CLASSES = 8
SIDE = 16


class WeightAverage:
    """Keeps an exponential moving average of a model's weights in a copy of the model."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        averages = self.module.state_dict()
        for name, value in model.state_dict().items():
            if name in averages:
                averages[name].lerp_(value, 1.0 - self.decay)


class ConvNet(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.body = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * width * 16, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.norm(self.stem(images)))
        x = nn.functional.adaptive_avg_pool2d(nn.functional.gelu(self.body(x)), 4)
        return self.head(x.flatten(1))


def draw(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(4))
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return 0.4 * patterns[labels] + torch.randn(count, 3, SIDE, SIDE, generator=generator), labels


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    images, labels = draw(256, torch.Generator().manual_seed(77))
    return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(25)
    net = ConvNet()
    average = WeightAverage(net, decay=0.95)
    model = torch.compile(net, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(8)
    for step in range(STEPS):
        images, labels = draw(BATCH, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        average.update(model)
        if step % 20 == 19:
            print(f"step {step} loss {loss.item():.4f} accuracy {accuracy(average.module):.3f}", flush=True)


if __name__ == "__main__":
    main()
