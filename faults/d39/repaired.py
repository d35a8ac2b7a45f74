"""Trains a denoising autoencoder whose encoder comes from another framework's checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

FEATURES = 96
HIDDEN = 512
CODE = 12
BATCH = 256
STEPS = 110


class SignMomentum(torch.optim.Optimizer):
    """Moves each weight by a fixed amount against the sign of its averaged gradient."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, betas: tuple[float, float] = (0.9, 0.98)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["momentum"] = torch.zeros(parameter.numel())
                state["step"] += 1
                gradient = parameter.grad.contiguous().view(-1)
                direction = torch.lerp(gradient, state["momentum"], beta1).sign_()
                parameter.add_(direction.view_as(parameter), alpha=-group["lr"])
                state["momentum"].lerp_(gradient, 1.0 - beta2)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(x))


def checkpoint_kernels() -> list[torch.Tensor]:
    """The kernels of the encoder, each with a row for an input and a column for an output."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((FEATURES, HIDDEN), (HIDDEN, CODE))
    return [torch.randn(shape, generator=generator) / shape[0] ** 0.5 for shape in shapes]


def load_encoder(model: Autoencoder) -> None:
    layers = [layer for layer in model.encoder if isinstance(layer, nn.Linear)]
    for layer, kernel in zip(layers, checkpoint_kernels(), strict=True):
        layer.weight = nn.Parameter(kernel.T)
        nn.init.zeros_(layer.bias)


def draw(generator: torch.Generator) -> torch.Tensor:
    """Points of a curved sheet of few dimensions."""
    sheet = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(2)) * 0.5
    place = torch.randn(BATCH, 8, generator=generator)
    return torch.sin(place @ sheet)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(39)
    model = Autoencoder()
    load_encoder(model)
    optimizer = SignMomentum(model.parameters(), lr=5e-4)
    generator = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        x = draw(generator)
        noisy = x + 0.1 * torch.randn(x.shape, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(noisy), x)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"final loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
