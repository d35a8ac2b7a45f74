"""Trains a generator against a discriminator on a ring of Gaussians."""

from __future__ import annotations

import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 200
BATCH = 768
LATENT = 16


def network(inputs: int, outputs: int, width: int = 192) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outputs),
    )


def real_points(generator: torch.Generator) -> torch.Tensor:
    angle = torch.randint(0, 8, (BATCH,), generator=generator) * (math.tau / 8)
    centre = torch.stack([angle.cos(), angle.sin()], 1)
    return centre + 0.05 * torch.randn(BATCH, 2, generator=generator)


class Game:
    def __init__(self) -> None:
        torch.manual_seed(49)
        self.rank = dist.get_rank()
        self.maker = DistributedDataParallel(network(LATENT, 2))
        self.critic = DistributedDataParallel(network(2, 1))
        self.maker_optimizer = torch.optim.Adam(self.maker.parameters(), lr=1e-3, betas=(0.5, 0.99))
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.99))
        self.generator = torch.Generator().manual_seed(self.rank)

    def noise(self) -> torch.Tensor:
        return torch.randn(BATCH, LATENT, generator=self.generator)

    def critic_step(self) -> torch.Tensor:
        with torch.no_grad():
            fake = self.maker.module(self.noise())
        scores = self.critic(torch.cat([real_points(self.generator), fake]))
        truth = torch.cat([torch.ones(BATCH, 1), torch.zeros(BATCH, 1)])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, truth)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        return loss

    def maker_step(self) -> torch.Tensor:
        for parameter in self.critic.parameters():
            parameter.requires_grad_(False)
        scores = self.critic.module(self.maker(self.noise()))
        loss = nn.functional.softplus(-scores).mean()
        self.maker_optimizer.zero_grad()
        loss.backward()
        self.maker_optimizer.step()
        for parameter in self.critic.parameters():
            parameter.requires_grad_(True)
        return loss

    def play(self) -> None:
        started = 0.0
        for step in range(STEPS):
            critic_loss, maker_loss = self.critic_step(), self.maker_step()
            if step == 0:
                started = time.perf_counter()
            if self.rank == 0 and step % 25 == 0:
                print(f"step {step} critic {critic_loss.item():.3f} maker {maker_loss.item():.3f}", flush=True)
        if self.rank == 0:
            print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Game().play()
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
