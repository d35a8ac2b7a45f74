"""Sorts short messages into topics with a small transformer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS = 200
LENGTH = 24
TOPICS = 5
STEPS = 100
EVALUATE_EVERY = 25
BATCH = 32


class Messages(IterableDataset):
    """Messages of mostly common words with a few that belong to their topic."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.count):
            topic = torch.randint(0, TOPICS, (), generator=generator)
            words = torch.randint(0, WORDS, (LENGTH,), generator=generator)
            places = torch.randperm(LENGTH, generator=generator)[:4]
            words[places] = 12 * topic + torch.randint(0, 12, (4,), generator=generator)
            yield words, topic


class TopicHead(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, TOPICS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.dense(x.mean(1)))
        x = F.dropout(x, self.dropout, training=self.training)
        return self.out(x)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed_forward(self.norm2(x))


class TopicModel(nn.Module):
    def __init__(self, width: int = 48, depth: int = 2, dropout: float = 0.6) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(*[Layer(width) for _ in range(depth)])
        self.head = TopicHead(width, dropout)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(words)))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss = right = count = 0.0
    for words, topics in loader:
        logits = model(words)
        loss += F.cross_entropy(logits, topics, reduction="sum").item()
        right += (logits.argmax(1) == topics).sum().item()
        count += len(topics)
    model.train()
    return loss / count, right / count


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(31)
    training = DataLoader(Messages(STEPS * BATCH, seed=1), batch_size=BATCH)
    held_out = DataLoader(Messages(320, seed=2), batch_size=64)
    model = TopicModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (words, topics) in enumerate(training, 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words), topics)
        loss.backward()
        optimizer.step()
        if step % EVALUATE_EVERY == 0:
            held_out_loss, accuracy = evaluate(model, held_out)
            print(f"step {step} loss {loss.item():.4f} held-out {held_out_loss:.4f} {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
