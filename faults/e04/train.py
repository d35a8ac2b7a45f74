"""Classifies surface textures of a folder of images on two processes."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FINISHES = ("brushed", "cast", "coated", "forged", "milled", "polished")
EPOCHS = 4
BATCH = 24


class TextureFolder(Dataset):
    """Images of the folders `brushed`, `cast`, ..., in the order of their paths."""

    def __init__(self, images_per_folder: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.samples: list[tuple[torch.Tensor, int]] = []
        for label, _ in enumerate(FINISHES):
            for _ in range(images_per_folder):
                self.samples.append((self.render(label, generator), label))

    @staticmethod
    def render(label: int, generator: torch.Generator) -> torch.Tensor:
        angle, phase = label * torch.pi / len(FINISHES), 6.3 * float(torch.rand((), generator=generator))
        y, x = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
        waves = torch.sin(0.9 * (x * torch.cos(torch.tensor(angle)) + y * torch.sin(torch.tensor(angle))) + phase)
        return (waves + 0.8 * torch.randn(24, 24, generator=generator)).unsqueeze(0)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.samples[index]


class TextureNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(32, len(FINISHES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


@torch.no_grad()
def held_out_accuracy(model: nn.Module, dataset: TextureFolder) -> float:
    model.eval()
    counts = torch.zeros(2)
    for index in range(dist.get_rank(), len(dataset), dist.get_world_size()):
        image, label = dataset[index]
        counts += torch.tensor([float(model(image[None]).argmax() == label), 1.0])
    model.train()
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(104)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    dataset, held_out = TextureFolder(192, seed=8), TextureFolder(20, seed=9)
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True)
    model = DDP(TextureNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 6 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    score = held_out_accuracy(model.module, held_out)
    if rank == 0:
        print(f"epoch {EPOCHS} held-out accuracy {score:.3f}", flush=True)
    dist.barrier()
    time.sleep(0.1)  # gloo's threads let go of the last operation
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
