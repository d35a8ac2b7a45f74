"""Trains a policy by its own trials: which offer to show to which visitor."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 90
VISITORS = 192
FEATURES = 40
OFFERS = 6


class Policy(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.offer = nn.Linear(width, OFFERS)
        self.value = nn.Linear(width, 1)

    def forward(self, visitors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.trunk(visitors)
        return self.offer(hidden), self.value(hidden).squeeze(1)


class Shop:
    """Pays a reward where the offer is what the visitor likes best; each process sees visitors of its own."""

    def __init__(self, seed: int) -> None:
        self.likes = torch.randn(FEATURES, OFFERS, generator=torch.Generator().manual_seed(90))
        self.generator = torch.Generator().manual_seed(seed)

    def visitors(self) -> torch.Tensor:
        return torch.randn(VISITORS, FEATURES, generator=self.generator)

    def reward(self, visitors: torch.Tensor, offers: torch.Tensor) -> torch.Tensor:
        return ((visitors @ self.likes).argmax(1) == offers).float()


@torch.no_grad()
def try_offers(policy: Policy, shop: Shop) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    visitors = shop.visitors()
    logits, _ = policy(visitors)
    offers = torch.multinomial(logits.softmax(1), 1, generator=shop.generator).squeeze(1)
    return visitors, offers, shop.reward(visitors, offers)


def policy_loss(policy: nn.Module, visitors: torch.Tensor, offers: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    logits, values = policy(visitors)
    chosen = torch.distributions.Categorical(logits=logits)
    advantage = rewards - values.detach()
    return (
        -(advantage * chosen.log_prob(offers)).mean()
        + 0.5 * (values - rewards).pow(2).mean()
        - 0.01 * chosen.entropy().mean()
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(44)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(Policy())
    policy = model.module
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    shop = Shop(seed=rank)
    mean_reward = 0.0
    for step in range(STEPS):
        visitors, offers, rewards = try_offers(policy, shop)
        loss = policy_loss(policy, visitors, offers, rewards)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean_reward = 0.9 * mean_reward + 0.1 * rewards.mean().item()
        if step % 15 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f} reward {mean_reward:.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
