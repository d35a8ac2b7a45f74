"""Segments cells with a small U-Net."""

from __future__ import annotations

import torch
from repaired_cells import Cells
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 5


def to_float(image: torch.Tensor) -> torch.Tensor:
    """8-bit pixels in 0..1."""
    return image.float().div(255.0)


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.down1 = block(1, width)
        self.down2 = block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.up2 = block(6 * width, 2 * width)
        self.up1 = block(3 * width, width)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.down1(image)
        coarse = self.down2(nn.functional.max_pool2d(fine, 2))
        x = self.bottom(nn.functional.max_pool2d(coarse, 2))
        x = self.up2(torch.cat([nn.functional.interpolate(x, scale_factor=2), coarse], 1))
        x = self.up1(torch.cat([nn.functional.interpolate(x, scale_factor=2), fine], 1))
        return self.mask(x)


@torch.no_grad()
def overlap(model: nn.Module, loader: DataLoader) -> float:
    """Intersection over union on held-out images."""
    model.eval()
    both = either = 0.0
    for images, masks in loader:
        found = model(images) > 0
        both += float((found & (masks > 0.5)).sum())
        either += float((found | (masks > 0.5)).sum())
    model.train()
    return both / either


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(102)
    train_loader = DataLoader(Cells(288, 1, to_float), batch_size=16, shuffle=True)
    test_loader = DataLoader(Cells(48, 2, to_float), batch_size=16)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for epoch in range(EPOCHS):
        total = 0.0
        for images, masks in train_loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        mean = total / len(train_loader)
        print(f"epoch {epoch} loss {mean:.4f} overlap {overlap(model, test_loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
