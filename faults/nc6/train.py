"""Two ranks train a transformer; a third one generates samples from the weights that rank 0 hands over."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS_PER_ROUND = (20, 60, 20, 80, 40)
TOKENS_PER_ROUND = (60, 300, 6000, 100, 30)
VOCABULARY = 64
TRAINERS = [0, 1]
SAMPLER = 2


class Encoder(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens)))


def hand_over(model: nn.Module, group: dist.ProcessGroup) -> None:
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0, group=group)


def train(model: nn.Module, trainers: dist.ProcessGroup, publishers: dist.ProcessGroup) -> None:
    rank = dist.get_rank()
    replica = DistributedDataParallel(model, process_group=trainers)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    step = 0
    for steps in STEPS_PER_ROUND:
        for _ in range(steps):
            tokens = torch.randint(0, VOCABULARY, (24, 32), generator=generator)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(replica(tokens).transpose(1, 2), tokens.flip(1))
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        if rank == 0:
            hand_over(model, publishers)


@torch.no_grad()
def sample(model: nn.Module, publishers: dist.ProcessGroup) -> None:
    for tokens_wanted in TOKENS_PER_ROUND:
        hand_over(model, publishers)
        text = torch.zeros(4, 1, dtype=torch.long)
        for _ in range(tokens_wanted):
            text = torch.cat([text, model(text[:, -32:])[:, -1:].argmax(-1)], 1)
        print(f"sampled {text.shape[1]} tokens", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(86)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    trainers, publishers = dist.new_group(TRAINERS), dist.new_group([0, SAMPLER])
    model = Encoder()
    if dist.get_rank() == SAMPLER:
        sample(model, publishers)
    else:
        train(model, trainers, publishers)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
