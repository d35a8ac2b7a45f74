"""Trains an LSTM tagger of messages on two ranks."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 200
LENGTH = 28
CLASSES = 5
BATCH = 24
STEPS = 90


class Tagger(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(self.norm(states))


def parameter_groups(model: nn.Module) -> list[dict]:
    """Recurrent weights decay; embeddings, norms, the output layer and biases do not."""
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (decayed if "lstm.weight_hh" in name else others).append(parameter)
    return [{"params": decayed, "weight_decay": 1e-3}, {"params": others, "weight_decay": 0.0}]


def messages(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Words, and for each the tag that it has after the word before."""
    kinds = torch.randint(0, CLASSES, (VOCABULARY,), generator=torch.Generator().manual_seed(6))
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    before = torch.nn.functional.pad(kinds[tokens][:, :-1], (1, 0))
    return tokens, (kinds[tokens] + (before == 0)) % CLASSES


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(41)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.SGD(parameter_groups(model), lr=1.4)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        tokens, tags = messages(generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} grad norm {norm.item():.3f}", flush=True)
    if rank == 0:
        print(f"final loss {loss.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
