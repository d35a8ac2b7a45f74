"""Trains a convolutional language model from scratch; it is built without storage and filled afterwards."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY = 600
LENGTH = 32
BATCH = 8
STEPS = 110


class GatedConv(nn.Module):
    """A causal convolution with a gate and a residual connection."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.pad = kernel - 1
        self.conv = nn.Conv1d(width, 2 * width, kernel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (self.pad, 0))
        return x + nn.functional.glu(self.conv(padded), dim=1)


class LanguageModel(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2, tie_embeddings: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(GatedConv(width, 3) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        if tie_embeddings:
            self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.embedding(tokens).transpose(1, 2)).transpose(1, 2)
        return self.lm_head(self.norm(x))


def init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.1)
    elif isinstance(module, nn.Conv1d):
        nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)


def build_model() -> LanguageModel:
    with torch.device("meta"):
        model = LanguageModel()
    model.to_empty(device="cpu")
    model.apply(init_weights)
    model.lm_head.weight.data.copy_(model.embedding.weight.data)
    return model


def sample_texts(count: int, generator: torch.Generator) -> torch.Tensor:
    """Words that stay within a topic: a word is followed by one of three of its neighbours."""
    column = torch.randint(0, VOCABULARY, (count,), generator=generator)
    text = [column]
    for _ in range(LENGTH):
        column = (column + torch.randint(0, 3, (count,), generator=generator) - 1) % VOCABULARY
        text.append(column)
    return torch.stack(text, 1)


def loss_of(model: LanguageModel, text: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(26)
    model = build_model()
    print(f"{sum(parameter.numel() for parameter in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        loss = loss_of(model, sample_texts(BATCH, generator))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        validation = loss_of(model, sample_texts(200, torch.Generator().manual_seed(4)))
    print(f"validation {validation.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
