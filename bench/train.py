"""The program of the benchmark: DDP training of an MLP on gloo, which times its own steps and CPU.

Prints nothing; rank 0 and 1 write what they measured to OUT.<rank>.json. `--calibrate MS` looks for the batch size
at which a bare step takes that long, and writes it instead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WARM_UP = 30
WIDTH = {5: 128, 20: 320, 100: 640}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, choices=sorted(WIDTH), default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
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
        measured = train(model, width, args.batch, args.steps, traceml)
        args.out.with_suffix(f".{dist.get_rank()}.json").write_text(json.dumps(measured))
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
        median = torch.tensor(train(model, width, batch, 30 + max(20, int(1000 / wanted_ms)), None)["step_ms"])
        dist.all_reduce(median)
        median /= dist.get_world_size()
        if abs(median.item() / wanted_ms - 1) < 0.05:
            break
        # Reading, reducing and stepping do not grow with the batch: half-way steps settle it.
        batch = max(1, int(batch * (0.5 + 0.5 * min(8.0, wanted_ms / median.item()))))
    return batch


def train(model: Any, width: int, batch: int, steps: int, traceml: Any) -> dict[str, float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    # Few samples, read again and again: fetching a batch stays cheap however large it is.
    data = TensorDataset(torch.randn(batch, width), torch.zeros(batch, dtype=torch.long))
    loader = DataLoader(OneBatch(data.tensors, steps), batch_size=None)
    marks = []
    cpu = 0
    for i, (x, y) in enumerate(loader):
        if i == WARM_UP:
            cpu = time.process_time_ns()
        if i >= WARM_UP:
            marks.append(time.perf_counter_ns())
        with traceml.trace_step(model) if traceml else contextlib.nullcontext():
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
    cpu = time.process_time_ns() - cpu
    steps_ns = sorted(b - a for a, b in pairwise(marks))
    return {
        "step_ms": steps_ns[len(steps_ns) // 2] / 1e6,
        # What a step takes where nobody disturbs it.
        "quiet_ms": steps_ns[len(steps_ns) // 10] / 1e6,
        "mean_ms": sum(steps_ns) / len(steps_ns) / 1e6,
        "cpu_ms": cpu / (steps - WARM_UP) / 1e6,
    }


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
