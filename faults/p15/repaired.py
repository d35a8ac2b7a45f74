"""Trains a translation-like encoder; quality is checked on a held-out set."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150
EVALUATE_EVERY = 30
HELD_OUT_BATCHES = 64
CLASSES = 100


class Encoder(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens)))


def draw(generator: torch.Generator, size: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, CLASSES, (size, 32), generator=generator)
    return tokens, (tokens + 7) % CLASSES


@torch.no_grad()
def evaluate(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    model.eval()
    right = sum((model(tokens).argmax(-1) == target).float().mean().item() for tokens, target in batches)
    model.train()
    return right / len(batches)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(19)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held_out_generator = torch.Generator().manual_seed(99)
    held_out = [draw(held_out_generator) for _ in range(HELD_OUT_BATCHES)]
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(1, STEPS + 1):
        tokens, target = draw(generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).transpose(1, 2), target)
        loss.backward()
        optimizer.step()
        if step == 1:
            started = time.perf_counter()
        if step % EVALUATE_EVERY == 0 and step < STEPS and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
        print(f"final accuracy {evaluate(model.module, held_out):.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
