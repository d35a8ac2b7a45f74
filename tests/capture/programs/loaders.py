import contextlib
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.zeros(1)


@contextlib.contextmanager
def section(name):
    begin = time.monotonic_ns()
    yield
    print(json.dumps({"section": name, "begin": begin, "end": time.monotonic_ns()}), flush=True)


def train(**options):
    loader = DataLoader(Numbers(), batch_size=2, **options)
    for _ in range(2):
        for x, y in loader:
            with torch.no_grad():
                nn.functional.mse_loss(model(x), y)


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = nn.Linear(4, 1)
    with section("fork"):
        train(num_workers=2)
    with section("persistent"):
        train(num_workers=2, persistent_workers=True)
    with section("spawn"):
        train(num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
    with section("forkserver"):
        train(num_workers=1, multiprocessing_context="forkserver", persistent_workers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
