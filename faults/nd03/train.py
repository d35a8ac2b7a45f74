"""Trains a variational autoencoder on spectra; the weight of the KL term rises over the first epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Settings:
    bins: int = 256
    latent: int = 8
    epochs: int = 4
    batch: int = 128
    learning_rate: float = 1e-3


class Spectra(Dataset):
    """Three lines of random strength, width and place on a noise floor."""

    def __init__(self, count: int, bins: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        axis = torch.linspace(0.0, 1.0, bins)
        place = torch.tensor([0.2, 0.5, 0.8]) + 0.1 * (torch.rand(count, 3, generator=generator) - 0.5)
        width = 0.02 + 0.03 * torch.rand(count, 3, generator=generator)
        strength = torch.rand(count, 3, generator=generator)
        lines = strength[..., None] * torch.exp(-(((axis - place[..., None]) / width[..., None]) ** 2))
        self.values = lines.sum(1) + 0.03 * torch.randn(count, bins, generator=generator)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.values[index]


class VAE(nn.Module):
    def __init__(self, bins: int, latent: int, width: int = 512) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(bins, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, bins)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        features = self.encoder(x)
        mean, log_variance = self.mean(features), self.log_variance(features)
        code = mean
        if self.training:
            code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(code), mean, log_variance


def elbo_terms(model: VAE, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    decoded, mean, log_variance = model(x)
    reconstruction = 50.0 * (decoded - x).square().sum(1).mean()
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(1).mean()
    return reconstruction, divergence


def main() -> None:
    settings = Settings()
    torch.set_num_threads(1)
    torch.manual_seed(203)
    loader = DataLoader(
        Spectra(3840, settings.bins, seed=7), settings.batch, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    held_out = Spectra(256, settings.bins, seed=8)
    model = VAE(settings.bins, settings.latent)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    step = 0
    for epoch in range(settings.epochs):
        model.train()
        for batch in loader:
            weight = min(1.0, (step + 1) / len(loader))
            reconstruction, divergence = elbo_terms(model, batch)
            loss = reconstruction + weight * divergence
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 15 == 0:
                print(f"step {step} loss {loss.item():.3f} kl {divergence.item():.3f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            reconstruction, divergence = elbo_terms(model, held_out.values)
        print(f"epoch {epoch} held-out {reconstruction.item():.3f} kl {divergence.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
