"""Many inverted pendulums at once, each pushed to the left or to the right."""

from __future__ import annotations

import torch

LIMIT = 0.5
PUSH = 6.0
SECONDS = 0.05


class Pendulums:
    """State [count, 2]: angle from upright and its speed. One point for each tick that it stands."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.zeros(count, 2)
        self.alive = torch.ones(count, dtype=torch.bool)

    def reset(self) -> torch.Tensor:
        self.state = 0.2 * torch.randn(self.count, 2, generator=self.generator)
        self.alive = torch.ones(self.count, dtype=torch.bool)
        return self.state.clone()

    def push(self, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next state and the reward of each pendulum; what has fallen stays down and earns nothing."""
        angle, speed = self.state.unbind(1)
        force = torch.where(right == 1, PUSH, -PUSH)
        force = force + 0.5 * torch.randn(self.count, generator=self.generator)
        speed = speed + SECONDS * (9.8 * angle.sin() + force * angle.cos())
        angle = angle + SECONDS * speed
        self.state = torch.stack([angle, speed], 1)
        self.alive = self.alive & (angle.abs() < LIMIT)
        return self.state.clone(), self.alive.float()
