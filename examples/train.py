"""A training loop with every mark that rankscope knows. None of them is needed: leave all of them out and it works too.

    python examples/train.py                      # observed by itself, because it calls rankscope.start()
    rankscope run -- python examples/train.py     # observed by the command; start() then only applies the config
    rankscope run -- torchrun --nproc-per-node 2 examples/train.py
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankscope

STEPS = 60


def tokenise(texts: list[str]) -> torch.Tensor:
    """Bytes as tokens, all texts as long as the longest."""
    longest = max(map(len, texts))
    return torch.tensor([list(text.ljust(longest).encode()) for text in texts])


def main() -> None:
    rankscope.start(name="example", config=Path(__file__).with_name("rankscope.toml"))
    torch.set_num_threads(1)
    model: nn.Module = nn.Sequential(nn.Embedding(256, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 256))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rankscope.watch(model, optimizer=optimizer, modules="*.1")  # this module is timed by its name on each step
    for number in range(STEPS):
        with rankscope.step():
            with rankscope.phase("tokenise"):
                tokens = tokenise([f"text {number} of {STEPS}", "another text"])
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rankscope.log(loss=loss)
    if dist.is_initialized():
        dist.destroy_process_group()
    rankscope.stop()


if __name__ == "__main__":
    main()
