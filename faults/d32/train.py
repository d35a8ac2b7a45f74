"""Fine-tunes a pretrained residual net on a few classes; its first stages are to stay as they are."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 5
SIDE = 32
BATCH = 24
SAMPLES = 45 * BATCH
EPOCHS = 2


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, outputs)
        self.mix = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return x + torch.relu(self.mix(x))


class ResidualNet(nn.Module):
    def __init__(self, frozen_stages: int = 0) -> None:
        super().__init__()
        self.frozen_stages = frozen_stages
        self.stages = nn.ModuleList([Residual(3, 24), Residual(24, 32), Residual(32, 48)])
        self.classifier = nn.Linear(48, CLASSES)

    def train(self, mode: bool = True) -> ResidualNet:
        """Switches the mode; in training mode the frozen stages are taken out of training."""
        super().train(mode)
        if mode:
            for stage in self.stages[: self.frozen_stages]:
                stage.eval()
                stage.requires_grad_(False)
        return self

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = images
        for stage in self.stages:
            x = stage(x)
        return self.classifier(x.mean((2, 3)))


def pretrained_weights() -> dict[str, torch.Tensor]:
    """Weights of the three stages, as the model zoo has them."""
    generator = torch.Generator().manual_seed(100)
    weights = {}
    for name, value in ResidualNet().stages.state_dict().items():
        if value.dim() == 4:
            fan_in = value[0].numel()
            weights[name] = torch.randn(value.shape, generator=generator) * (2.0 / fan_in) ** 0.5
        else:
            weights[name] = value
    return weights


def photographs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    textures = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(6))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return 0.6 * textures[labels] + torch.randn(count, 3, SIDE, SIDE, generator=generator), labels


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(32)
    model = ResidualNet(frozen_stages=2)
    model.stages.load_state_dict(pretrained_weights())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-3, weight_decay=0.01)
    loader = DataLoader(TensorDataset(*photographs(SAMPLES, seed=1)), batch_size=BATCH, shuffle=True)
    for epoch in range(EPOCHS):
        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % 15 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        images, labels = photographs(200, seed=2)
        print(f"accuracy {(model(images).argmax(1) == labels).float().mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
