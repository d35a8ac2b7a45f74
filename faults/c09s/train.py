"""Two ranks train, a third one scores the weights that it gets from them every five steps."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from record_block import RecordBlock
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 200
SHARE_EVERY = 5
TRAINERS = [0, 1]
SCORER = 2


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))


def share_weights(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


def train(model: nn.Module, group: dist.ProcessGroup) -> None:
    rank = dist.get_rank()
    replica = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, STEPS + 1):
        x = torch.randn(768, 64, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(replica(x), x.flip(1))
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % SHARE_EVERY == 0:
            share_weights(model)
            dist.barrier()


def score(model: nn.Module) -> None:
    block = RecordBlock()
    for number in range(STEPS // SHARE_EVERY):
        share_weights(model)
        with torch.no_grad():
            for record in range(2 * number, 2 * number + 2):
                x = block.read(record)
                nn.functional.mse_loss(model(x), x.flip(1))
        dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(76)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    group = dist.new_group(TRAINERS)
    model = network()
    if dist.get_rank() == SCORER:
        score(model)
    else:
        train(model, group)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
