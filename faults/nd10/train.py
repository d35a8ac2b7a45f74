"""Fine-tunes a frozen encoder with low-rank adapters to grade short answers."""

from __future__ import annotations

import torch
from lora import add_adapters
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH, GRADES = 200, 24, 4
EPOCHS = 3


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm1(x)
        q, k, v = (
            one(normed).unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value)
        )
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, width: int = 96, depth: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.Sequential(*[Layer(width, 4) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layers(self.tokens(tokens))).mean(1)


class Grader(nn.Module):
    def __init__(self, encoder: Encoder, width: int = 96) -> None:
        super().__init__()
        self.encoder = encoder
        self.grade = nn.Linear(width, GRADES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.grade(self.encoder(tokens))


def answers(count: int, seed: int) -> TensorDataset:
    """Answers with more key words of a grade than of the others."""
    generator = torch.Generator().manual_seed(seed)
    grades = torch.randint(0, GRADES, (count,), generator=generator)
    tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    key = torch.rand(count, LENGTH, generator=generator) < 0.25
    return TensorDataset(torch.where(key, tokens // GRADES * GRADES + grades[:, None], tokens), grades)


def load_pretrained() -> Encoder:
    """Stands for a checkpoint that is read from a hub."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Encoder()


def test(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        hits = [(model(tokens).argmax(1) == grades).float() for tokens, grades in loader]
    model.train()
    return float(torch.cat(hits).mean())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(210)
    encoder = load_pretrained()
    adapted = add_adapters(encoder, ("query", "value", "up"), rank=8, alpha=16.0, dropout=0.05)
    model = Grader(encoder)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    share = sum(p.numel() for p in trained) / sum(p.numel() for p in model.parameters())
    print(f"{adapted} adapters, {100 * share:.1f} % of the parameters are trained", flush=True)
    train_loader = DataLoader(answers(1120, seed=61), batch_size=32, shuffle=True, drop_last=True)
    test_loader = DataLoader(answers(160, seed=62), batch_size=80)
    optimizer = torch.optim.AdamW(trained, lr=3e-3, weight_decay=0.0)
    for epoch in range(EPOCHS):
        for step, (tokens, grades) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(tokens), grades)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} accuracy {test(model, test_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
