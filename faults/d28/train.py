"""Trains a recurrent language model on two ranks."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY = 40
LENGTH = 32
BATCH = 32
EPOCHS = 2
TEXTS = 2 * 45 * BATCH
IGNORED = -100


def write_text(seed: int, length: int) -> torch.Tensor:
    """Mostly a fixed cycle through the vocabulary, now and then a jump."""
    generator = torch.Generator().manual_seed(seed)
    jumps = torch.rand(length, generator=generator) < 0.1
    targets = torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()
    token, text = targets[0], []
    for jump, target in zip(jumps.tolist(), targets, strict=True):
        token = target if jump else (7 * token + 3) % VOCABULARY
        text.append(token)
    return torch.tensor(text)


class Texts(Dataset):
    def __init__(self, count: int) -> None:
        self.texts = write_text(seed=1, length=count * LENGTH).view(count, LENGTH)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.texts[index]


def collate(texts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    tokens = torch.stack(texts)
    labels = torch.full_like(tokens, IGNORED)
    labels[:, :-1] = tokens[:, 1:]
    return {"tokens": tokens, "labels": labels}


class LanguageModel(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Logits, and with labels the loss: the logits of a place are compared with the label of the next."""
        states, _ = self.gru(self.embedding(tokens))
        logits = self.head(states)
        if labels is None:
            return {"logits": logits}
        predictions = logits[:, :-1].reshape(-1, VOCABULARY)
        loss = nn.functional.cross_entropy(predictions, labels[:, 1:].reshape(-1), ignore_index=IGNORED)
        return {"logits": logits, "loss": loss}


@torch.no_grad()
def next_token_accuracy(model: nn.Module) -> float:
    text = write_text(seed=2, length=64 * LENGTH).view(64, LENGTH)
    model.eval()
    guesses = model(text[:, :-1])["logits"].argmax(2)
    model.train()
    return (guesses == text[:, 1:]).float().mean().item()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(28)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    dataset = Texts(TEXTS)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            optimizer.zero_grad()
            loss = model(batch["tokens"], batch["labels"])["loss"]
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 15 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"next-token accuracy {next_token_accuracy(model.module):.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
