"""REINFORCE: learns to balance pendulums from whole episodes."""

from __future__ import annotations

import torch
from pendulums import Pendulums
from torch import nn
from torch.distributions import Categorical

UPDATES = 80
COUNT = 48
TICKS = 40
DISCOUNT = 0.95


class Policy(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.action = nn.Linear(width, 2)
        nn.init.normal_(self.action.weight, 0.0, 0.01)

    def forward(self, state: torch.Tensor) -> Categorical:
        return Categorical(logits=self.action(self.body(state)))


class Episode:
    """What one round of all pendulums gave, by tick."""

    def __init__(self) -> None:
        self.log_probs: list[torch.Tensor] = []
        self.entropies: list[torch.Tensor] = []
        self.rewards: list[torch.Tensor] = []
        self.counted: list[torch.Tensor] = []

    def returns(self) -> torch.Tensor:
        running = torch.zeros(COUNT)
        backwards = []
        for reward in reversed(self.rewards):
            running = reward + DISCOUNT * running
            backwards.append(running)
        return torch.stack(backwards[::-1])


def play(env: Pendulums, policy: Policy) -> Episode:
    episode = Episode()
    state = env.reset()
    for _ in range(TICKS):
        standing = env.alive.float()
        actions = policy(state)
        right = actions.sample()
        episode.log_probs.append(actions.log_prob(right))
        episode.entropies.append(actions.entropy())
        episode.counted.append(standing)
        state, reward = env.push(right)
        episode.rewards.append(reward)
    return episode


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(206)
    env = Pendulums(COUNT, seed=12)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for update in range(UPDATES):
        episode = play(env, policy)
        returns, counted = episode.returns(), torch.stack(episode.counted)
        seen = counted.sum()
        baseline = (returns * counted).sum(1, keepdim=True) / counted.sum(1, keepdim=True).clamp(min=1.0)
        advantage = (returns - baseline) * counted
        advantage = advantage / ((advantage.square().sum() / seen).sqrt() + 1e-6)
        gain = (torch.stack(episode.log_probs) * advantage).sum() / seen
        entropy = (torch.stack(episode.entropies) * counted).sum() / seen
        loss = -gain - 0.005 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        if update % 10 == 0:
            ticks = float(torch.stack(episode.rewards).sum(0).mean())
            print(f"step {update} ticks {ticks:.1f} entropy {entropy.item():.3f} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
