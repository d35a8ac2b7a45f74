"""Language-model-like training with gradient accumulation over eight micro-batches."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 60
MICRO_BATCHES = 8
VOCABULARY = 512


class Model(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(13)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(rank)
    started = 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        for _ in range(MICRO_BATCHES):
            tokens = torch.randint(0, VOCABULARY, (4, 17), generator=generator)
            loss = loss_of(model, tokens) / MICRO_BATCHES
            loss.backward()
        optimizer.step()
        if step == 0:
            started = time.perf_counter()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item() * MICRO_BATCHES:.4f}", flush=True)
    if rank == 0:
        print(f"train_seconds={time.perf_counter() - started:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
