"""Trains a small transformer; all ranks validate their share of the held-out set every 40 steps."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 64


class Encoder(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens)))


def draw(generator: torch.Generator, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, CLASSES, (size, 32), generator=generator)
    return tokens, tokens.flip(1)


@torch.no_grad()
def validate(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    model.eval()
    total = torch.zeros(())
    for tokens, target in batches:
        total += nn.functional.cross_entropy(model(tokens).transpose(1, 2), target)
    dist.all_reduce(total)
    model.train()
    return float(total) / (len(batches) * dist.get_world_size())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--validate-every", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(47)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    held_out_generator = torch.Generator().manual_seed(1000 + rank)
    held_out = [draw(held_out_generator, 40) for _ in range(4)]
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(args.steps):
        tokens, target = draw(generator, 40)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), target)
        loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if (step + 1) % args.validate_every == 0:
            held_out_loss = validate(model.module, held_out)
            if rank == 0:
                print(f"step {step + 1} loss {loss.item():.4f} held-out {held_out_loss:.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
