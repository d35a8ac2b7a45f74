"""Segments blobs in noisy pictures with a small U-Net and mixed precision."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 32
BATCH = 16
STEPS = 80
CLIP = 1.0


class Blobs(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count
        line = torch.arange(SIDE, dtype=torch.float32)
        self.rows, self.columns = torch.meshgrid(line, line, indexing="ij")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        y, x = (8 + 16 * torch.rand(2, generator=generator)).tolist()
        radius = 4 + 5 * torch.rand((), generator=generator).item()
        mask = ((self.rows - y) ** 2 + (self.columns - x) ** 2 < radius**2).float()
        picture = mask + 0.5 * torch.randn(SIDE, SIDE, generator=generator)
        return picture.unsqueeze(0), mask.unsqueeze(0)


def double_conv(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(), nn.Conv2d(outer, outer, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = double_conv(1, width)
        self.middle = double_conv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge = double_conv(2 * width, width)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.down(x)
        deep = self.up(self.middle(nn.functional.max_pool2d(skip, 2)))
        return self.mask(self.merge(torch.cat([skip, deep], 1)))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(13)
    loader = DataLoader(Blobs(STEPS * BATCH), batch_size=BATCH, shuffle=True, num_workers=1)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, (pictures, masks) in enumerate(loader):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(pictures)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), masks)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            overlap = ((logits > 0) == masks.bool()).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} pixels right {overlap:.3f}", flush=True)


if __name__ == "__main__":
    main()
