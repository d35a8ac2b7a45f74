"""Trains a DCGAN on small pictures of coloured discs."""

from __future__ import annotations

import torch
from torch import nn

STEPS = 120
BATCH = 32
LATENT = 32


def discs(generator: torch.Generator) -> torch.Tensor:
    """Pictures [BATCH, 3, 16, 16] in -1..1."""
    grid = torch.linspace(-1.0, 1.0, 16)
    centre = 0.8 * torch.rand(2, BATCH, 1, 1, generator=generator) - 0.4
    radius = 0.35 + 0.3 * torch.rand(BATCH, 1, 1, generator=generator)
    distance = ((grid[:, None] - centre[0]) ** 2 + (grid[None, :] - centre[1]) ** 2).sqrt()
    inside = torch.sigmoid(12.0 * (radius - distance)).unsqueeze(1)
    colour = 2.0 * torch.rand(BATCH, 3, 1, 1, generator=generator) - 1.0
    return inside * colour - (1.0 - inside) * 0.8


def initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def make_generator(width: int = 24) -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose2d(LATENT, 2 * width, 4, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(True),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(True),
        nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
        nn.Tanh(),
    )


def make_discriminator(width: int = 24) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(2 * width, 1, 4),
        nn.Flatten(0),
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(202)
    net_g, net_d = make_generator().apply(initialise), make_discriminator().apply(initialise)
    optimizer_g = torch.optim.Adam(net_g.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    real_label, fake_label = torch.full((BATCH,), 0.9), torch.zeros(BATCH)
    data = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        # (1) the discriminator
        net_d.zero_grad()
        loss_real = criterion(net_d(discs(data)), real_label)
        loss_real.backward()
        fake = net_g(torch.randn(BATCH, LATENT, 1, 1))
        loss_fake = criterion(net_d(fake.detach()), fake_label)
        loss_fake.backward()
        optimizer_d.step()
        # (2) the generator
        net_g.zero_grad()
        loss_g = criterion(net_d(fake), torch.ones(BATCH))
        loss_g.backward()
        optimizer_g.step()
        if step % 10 == 0:
            loss_d = loss_real.item() + loss_fake.item()
            print(f"step {step} loss_d {loss_d:.4f} loss_g {loss_g.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
