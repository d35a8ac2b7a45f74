"""Trains a small ranking model on made-up click logs, on several processes."""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150


class Session:
    """What one visitor clicked; the click that led to it and the one that followed know each other."""

    def __init__(self, clicks: list[int]) -> None:
        self.clicks = clicks
        self.next: Session | None = None
        self.previous: Session | None = None


def read_log(count: int) -> list[Session]:
    """Sessions of one log file, linked in the order of their time."""
    sessions = [Session([number, number + 1]) for number in range(count)]
    for first, second in pairwise(sessions):
        first.next, second.previous = second, first
    return sessions


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history = read_log(250_000 if rank == 1 else 1_000)
    for step in range(STEPS):
        features = torch.randn(128, 64)
        # What was read for a step is dropped after it; its links keep it from being freed at once.
        recent = read_log(4_000 if rank == 1 else 50)
        target = torch.tensor([float(len(session.clicks)) for session in recent[:128]] * 128)[:128]
        loss = nn.functional.mse_loss(model(features).squeeze(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {len(history)} sessions", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
