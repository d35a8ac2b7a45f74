"""Trains a small language model with AdamW and a cosine schedule."""

from __future__ import annotations

import torch
from torch import nn

try:
    from apex.normalization import FusedLayerNorm as LayerNorm
except ImportError:

    class LayerNorm(nn.LayerNorm):
        """Layer norm that computes in float32 whatever it gets."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.float()).to(x.dtype)


TOKENS = 96
LENGTH = 32
BATCH = 16
STEPS = 120
WIDTH = 64


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class DecoderLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.post_attention_layernorm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.input_layernorm(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList([DecoderLayer(WIDTH) for _ in range(depth)])
        self.final_layernorm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position(torch.arange(LENGTH))
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.final_layernorm(x))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Norms and biases in a group of their own."""
    decayed, others = [], []
    for module in model.modules():
        own = list(module.named_parameters(recurse=False))
        if isinstance(module, LayerNorm):
            others += [parameter for _, parameter in own]
        else:
            others += [parameter for name, parameter in own if name.endswith("bias")]
            decayed += [parameter for name, parameter in own if not name.endswith("bias")]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def draw_text(generator: torch.Generator) -> torch.Tensor:
    """Counting lines: a start, a stride of one to three, now and then a slip."""
    start = torch.randint(0, TOKENS, (BATCH, 1), generator=generator)
    stride = torch.randint(1, 4, (BATCH, 1), generator=generator)
    text = (start + stride * torch.arange(LENGTH + 1)) % TOKENS
    slip = torch.rand(text.shape, generator=generator) < 0.03
    return torch.where(slip, torch.randint(0, TOKENS, text.shape, generator=generator), text)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(71)
    model = Decoder()
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.3), lr=6e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    generator = torch.Generator().manual_seed(72)
    for step in range(STEPS):
        text = draw_text(generator)
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
