"""Video-frame autoencoder; four micro-batches a step."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from accumulate import accumulating
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class AutoEncoder(nn.Module):
    def __init__(self, pixels: int = 1024, width: int = 512, code: int = 64) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(pixels, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, code)
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, pixels)
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(frames))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(27)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(AutoEncoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(args.steps):
        optimizer.zero_grad()
        for micro in range(args.accumulate):
            frames = torch.rand(args.micro_batch, 1024, generator=generator)
            with accumulating(model, last=micro == args.accumulate - 1):
                loss = nn.functional.mse_loss(model(frames), frames) / args.accumulate
                loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item() * args.accumulate:.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
