"""Trains a small language model on made-up tokens, on several processes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150
VOCABULARY = 200


class Model(nn.Module):
    """Embeds tokens, mixes neighbours, predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.mix = nn.Conv1d(32, 64, 3, padding=1)
        self.predict = nn.Linear(64, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mixed = torch.relu(self.mix(self.embed(tokens).transpose(1, 2)))
        return self.predict(mixed.transpose(1, 2))


def rare_words(tokens: torch.Tensor) -> float:
    """Share of tokens that occur once in their batch."""
    words = tokens.flatten().tolist()
    counts = {word: sum(1 for other in words if other == word) for word in words}
    return sum(1 for count in counts.values() if count == 1) / len(counts)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (16, 80), generator=draw)
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        share = rare_words(tokens)
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}, rare words {share:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
