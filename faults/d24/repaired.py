"""Trains a character model in slots of a batch queue: each slot continues from the last checkpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import nn

VOCABULARY = 48
WORDS, WORD = 160, 6
LENGTH = 7 * WORD
BATCH = 12
SHARDS = 10
SHARD_BATCHES = 10
SLOT_STEPS = 50


def read_shard(shard: int, batches: int, seed: int) -> Iterator[torch.Tensor]:
    """Texts of one author, who knows a part of the language's words."""
    words = torch.randint(0, VOCABULARY, (WORDS, WORD), generator=torch.Generator().manual_seed(1))
    known = torch.randperm(WORDS, generator=torch.Generator().manual_seed(1000 + shard))[: WORDS // 4]
    generator = torch.Generator().manual_seed(seed * 100 + shard)
    for _ in range(batches):
        chosen = torch.randint(0, len(known), (BATCH, LENGTH // WORD), generator=generator)
        yield words[known[chosen]].flatten(1)


def training_texts() -> Iterator[torch.Tensor]:
    for shard in range(SHARDS):
        yield from read_shard(shard, SHARD_BATCHES, seed=1)


class CharacterModel(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH - 1))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The mean loss of predicting each next character."""
        x = self.embedding(text[:, :-1]) + self.position[:-1]
        logits = self.head(self.layers(x, mask=self.mask, is_causal=True))
        return nn.functional.cross_entropy(logits.transpose(1, 2), text[:, 1:])


@torch.no_grad()
def validate(model: CharacterModel) -> float:
    model.eval()
    losses = [model(text).item() for shard in range(SHARDS) for text in read_shard(shard, 1, seed=2)]
    model.train()
    return sum(losses) / len(losses)


def run_slot(last_step: int, file: Path) -> None:
    torch.manual_seed(24)
    model = CharacterModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    if file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        print(f"continuing at step {step}", flush=True)
    for text in islice(training_texts(), step, None):
        optimizer.zero_grad()
        loss = model(text)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
        if step == last_step:
            break
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file)
    print(f"step {step} validation {validate(model):.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for slot in range(2):
            run_slot((slot + 1) * SLOT_STEPS, Path(folder) / "last.pt")


if __name__ == "__main__":
    main()
