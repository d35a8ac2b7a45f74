"""Learns a sparse code of image patches: only the strongest units of the hidden layer pass."""

from __future__ import annotations

import argparse

import torch
from torch import nn

PIXELS = 144
CAUSES = 64


def patches(count: int, basis: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each patch is the sum of a few elements of `basis`, with noise."""
    strength = torch.rand(count, CAUSES, generator=generator) + 0.5
    present = torch.rand(count, CAUSES, generator=generator) < 6.0 / CAUSES
    return (strength * present) @ basis + 0.05 * torch.randn(count, PIXELS, generator=generator)


class SparseAutoencoder(nn.Module):
    def __init__(self, units: int, kept: int) -> None:
        super().__init__()
        self.kept = kept
        self.centre = nn.Parameter(torch.zeros(PIXELS))
        self.encoder = nn.Linear(PIXELS, units)
        self.decoder = nn.Linear(units, PIXELS, bias=False)
        with torch.no_grad():
            self.decoder.weight.div_(self.decoder.weight.norm(dim=0))
            self.encoder.weight.copy_(self.decoder.weight.t())
            self.encoder.bias.zero_()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        activity = torch.relu(self.encoder(x - self.centre))
        strongest = activity.topk(self.kept, dim=1)
        code = torch.zeros_like(activity).scatter(1, strongest.indices, strongest.values)
        return self.decoder(code) + self.centre, code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--kept", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(208)
    generator = torch.Generator().manual_seed(77)
    basis = nn.functional.normalize(torch.randn(CAUSES, PIXELS, generator=generator), dim=1)
    model = SparseAutoencoder(args.units, args.kept)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    used = torch.zeros(args.units)
    data = patches(16 * args.batch, basis, generator)
    for step in range(args.steps):
        if step % 16 == 0:
            order = torch.randperm(len(data), generator=generator).chunk(16)
        batch = data[order[step % 16]]
        decoded, code = model(batch)
        loss = (decoded - batch).square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        used += (code.detach() > 0).sum(0)
        if step % 20 == 19:
            idle = float((used == 0).float().mean())
            print(f"step {step} loss {loss.item():.4f} units without use {100 * idle:.1f} %", flush=True)
            used.zero_()


if __name__ == "__main__":
    main()
