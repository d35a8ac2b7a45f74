"""The program of the benchmark: DDP training of an MLP on gloo, which notes when each step ended and its CPU time.

Prints nothing and trains until it is killed, or for `--steps`; each rank notes into OUT.<rank>, a table of int64
[MAX_STEPS, 2] (monotonic ns, CPU ns of the process; 0: not reached). `--calibrate MS` looks for the batch size at
which a bare step takes that long, and writes it instead.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

WARM_UP = 30
MAX_STEPS = 100_000
WIDTH = {5: 128, 20: 320, 100: 640}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, choices=sorted(WIDTH), default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=MAX_STEPS)
    parser.add_argument("--calibrate", type=float, default=0.0)
    parser.add_argument("--traceml", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    traceml = start_traceml() if args.traceml else None
    torch.manual_seed(0)
    width = WIDTH[args.size]
    layers = [m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 10)))
    if args.calibrate:
        batch = calibrated(model, width, args.calibrate)
        if dist.get_rank() == 0:
            args.out.write_text(str(batch))
    else:
        file = args.out.with_suffix(f".{dist.get_rank()}")
        notes = np.memmap(file, np.int64, "w+", shape=(MAX_STEPS, 2))
        train(model, width, args.batch, notes[: args.steps], traceml)
    dist.barrier()
    time.sleep(0.5)  # gloo aborts a rank whose peer closes its connections while the rank is still busy with its own
    dist.destroy_process_group()


def start_traceml() -> Any:
    import traceml_ai

    traceml_ai.init(mode="auto")
    return traceml_ai


def calibrated(model: Any, width: int, wanted_ms: float) -> int:
    """The batch size for a step of that length, the same on both ranks."""
    batch = 16
    for _ in range(10):
        steps = WARM_UP + max(20, int(1000 / wanted_ms))
        notes = np.zeros((steps, 2), np.int64)
        train(model, width, batch, notes, None)
        median = torch.tensor(float(np.median(np.diff(notes[WARM_UP:, 0]))) / 1e6)
        dist.all_reduce(median)
        median /= dist.get_world_size()
        if abs(median.item() / wanted_ms - 1) < 0.05:
            break
        # Reading, reducing and stepping do not grow with the batch: half-way steps settle it.
        batch = max(1, int(batch * (0.5 + 0.5 * min(8.0, wanted_ms / median.item()))))
    return batch


def train(model: Any, width: int, batch: int, notes: Any, traceml: Any) -> None:
    """As many steps as there are rows in `notes`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    # One batch, read again and again: fetching it stays cheap however large it is.
    one = torch.randn(batch, width), torch.zeros(batch, dtype=torch.long)
    loader = DataLoader(OneBatch(one, len(notes)), batch_size=None)
    for i, (x, y) in enumerate(loader):
        notes[i] = time.monotonic_ns(), time.process_time_ns()
        with traceml.trace_step(model) if traceml else contextlib.nullcontext():
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()


class OneBatch(torch.utils.data.Dataset[Any]):
    """The same batch at every index."""

    def __init__(self, tensors: Any, length: int) -> None:
        self.tensors, self.length = tensors, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.tensors


if __name__ == "__main__":
    main()
