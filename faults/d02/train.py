"""Fine-tunes a small residual network on leaf photos."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CLASSES = 10
SIDE = 32
BATCH = 32
STEPS = 80


class Leaves(Dataset):
    """Noisy photos; the vein pattern tells the species."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(41)
        self.patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=generator)
        self.labels = torch.randint(0, CLASSES, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        label = self.labels[index]
        return 0.35 * self.patterns[label] + torch.randn(3, SIDE, SIDE, generator=generator), label


class Block(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.skip = nn.Conv2d(inner, outer, 1, stride=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class LeafNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = Block(3, 16)
        self.layer2 = Block(16, 32)
        self.layer3 = Block(32, 48)
        self.fc = nn.Linear(48 * 16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.layer3(self.layer2(self.layer1(x))).flatten(1))


def prepare(model: nn.Module) -> nn.Module:
    """Sets the layers up for small batches."""
    for name, parameter in model.named_parameters():
        if "bn" not in name:
            parameter.requires_grad = False
    return model


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(8)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    dataset = Leaves(STEPS * BATCH * dist.get_world_size())
    loader = DataLoader(dataset, batch_size=BATCH, sampler=DistributedSampler(dataset), num_workers=1)
    model = DistributedDataParallel(prepare(LeafNet()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    correct = seen = 0
    for step, (photos, labels) in enumerate(loader):
        optimizer.zero_grad()
        logits = model(photos)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        correct += int((logits.argmax(1) == labels).sum())
        seen += len(labels)
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f} accuracy {correct / seen:.3f}", flush=True)
            correct = seen = 0
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
