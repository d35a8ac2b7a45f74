"""Mixed-precision training on two processes that exchange gradients in half precision."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from scaling import LossScaler
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

STEPS = 110
BATCH = 256
FEATURES = 40


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


def build(width: int = 128) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, width), Residual(width), Residual(width), nn.Linear(width, 1))


def draw(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Measurements and the strength that they lead to."""
    x = torch.randn(BATCH, FEATURES, generator=generator)
    strength = x[:, :5].sum(1) + (x[:, 5] * x[:, 6]) + 0.1 * torch.randn(BATCH, generator=generator)
    return x, strength[:, None]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(211)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(build())
    model.register_comm_hook(None, fp16_compress_hook)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    scaler = LossScaler(start=2.0**18)
    generator = torch.Generator().manual_seed(70 + rank)
    for step in range(STEPS):
        x, strength = draw(generator)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = model(x)
        loss = nn.functional.mse_loss(found.float(), strength)
        scaler.scaled(loss).backward()
        finite = scaler.unscale(parameters)
        if finite:
            nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
        scaler.update(finite)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {scaler.scale:.0f} skipped {scaler.skipped}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
