"""Trains a conv net on drawn digits, with validation after each epoch."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 4
BATCH = 32
STROKES = {
    0: "top right bottom left", 1: "right", 2: "top right-up middle left-down bottom", 3: "top right middle bottom",
    4: "left-up middle right", 5: "top left-up middle right-down bottom", 6: "top left middle right-down bottom",
    7: "top right", 8: "top right middle bottom left", 9: "top left-up middle right bottom",
}  # fmt: skip
PLACES = {
    "top": (slice(4, 7), slice(9, 19)), "middle": (slice(13, 16), slice(9, 19)),
    "bottom": (slice(22, 25), slice(9, 19)), "left": (slice(4, 25), slice(8, 11)),
    "left-up": (slice(4, 15), slice(8, 11)), "left-down": (slice(14, 25), slice(8, 11)),
    "right": (slice(4, 25), slice(17, 20)), "right-up": (slice(4, 15), slice(17, 20)),
    "right-down": (slice(14, 25), slice(17, 20)),
}  # fmt: skip


def digits(count: int, seed: int) -> TensorDataset:
    """Digits, each moved a little and with noise, with mean 0 and deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    shapes = torch.zeros(10, 28, 28)
    for digit, strokes in STROKES.items():
        for stroke in strokes.split():
            shapes[(digit, *PLACES[stroke])] = 1.0
    labels = torch.randint(0, 10, (count,), generator=generator)
    moves = torch.randint(-3, 4, (count, 2), generator=generator).tolist()
    images = torch.stack([shapes[label].roll(move, (0, 1)) for label, move in zip(labels.tolist(), moves, strict=True)])
    images = images + 0.4 * torch.randn(count, 28, 28, generator=generator)
    return TensorDataset((images - images.mean()).div(images.std()).unsqueeze(1), labels)


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.norm2 = nn.BatchNorm2d(32)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 7 * 7, 96)
        self.fc2 = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm1(self.conv1(x))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.norm2(self.conv2(x))), 2)
        return self.fc2(self.dropout(torch.relu(self.fc1(x.flatten(1)))))


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Loss and accuracy over the shares of all processes."""
    model.eval()
    sums = torch.zeros(3)
    for images, labels in loader:
        logits = model(images)
        sums[0] += nn.functional.cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(1) == labels).sum()
        sums[2] += len(labels)
    dist.all_reduce(sums)
    model.train()
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(201)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    train_set, test_set = digits(1920, seed=1), digits(256, seed=2)
    sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    train_loader = DataLoader(train_set, BATCH, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, 64, sampler=DistributedSampler(test_set, shuffle=False))
    model = DDP(LeNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        scheduler.step()
        test_loss, accuracy = validate(model.module, test_loader)
        if rank == 0:
            print(f"epoch {epoch} test loss {test_loss:.4f} accuracy {accuracy:.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
