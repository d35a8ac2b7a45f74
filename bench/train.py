"""The program of the benchmark: DDP training of an MLP on gloo that times its own steps and CPU.

Prints nothing; each rank writes what it measured to OUT.<rank>.json: with `--steps` of a whole run, with `--pairs` of
blocks that are bare and observed in turn, in this same process. `--calibrate MS` looks for the batch size at which a
bare step takes that long, and writes it instead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

WARM_UP = 30
SETTLING = 10
"""Steps at the beginning of a block that do not count."""
WAYS = ("bare", "early", "observed")
"""The turns: not observed, as in the first 20 s of a process, and as later."""
NEVER_NS = 10**15
WIDTH = {5: 128, 20: 320, 100: 640}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, choices=sorted(WIDTH), default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--block", type=int, default=40, help="steps of a block")
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
    measured: Any
    if args.calibrate:
        measured = calibrated(model, width, args.calibrate)
    elif args.pairs:
        measured = in_turn(model, width, args.batch, args.pairs, args.block)
    else:
        measured = train(model, width, args.batch, args.steps, traceml, settling=WARM_UP)
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
        median = torch.tensor(train(model, width, batch, 50 + int(1000 / wanted_ms), None, settling=WARM_UP)["step_ms"])
        dist.all_reduce(median)
        median /= dist.get_world_size()
        if abs(median.item() / wanted_ms - 1) < 0.05:
            break
        # Reading, reducing and stepping do not grow with the batch: half-way steps settle it.
        batch = max(1, int(batch * (0.5 + 0.5 * min(8.0, wanted_ms / median.item()))))
    return batch


def in_turn(model: Any, width: int, batch: int, pairs: int, block: int) -> dict[str, list[dict[str, float]]]:
    """Blocks of bare and of observed steps: A B C C B A ..., so that a drift of the machine meets all alike."""
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    # One for all blocks: after a new one, the next steps are sampled.
    optimizer = sgd(model)
    train(model, width, batch, WARM_UP, None, settling=0, optimizer=optimizer)
    state = Observation()
    for number in range(pairs):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            with state.on(way) if way != "bare" else contextlib.nullcontext():
                steps = block + SETTLING
                measured[way].append(train(model, width, batch, steps, None, settling=SETTLING, optimizer=optimizer))
    return measured


class Observation:
    """Everything that runs in a rank under `rankscope run`: hooks, ring, stack sampler; not the recorder.

    It goes on in each block where it was in the one before: the number of the step, and how far apart the sampled
    steps are.
    """

    def __init__(self) -> None:
        self.step = 100  # steps that are recorded module by module are few, later
        self.spacings: dict[str, int] = {}

    @contextlib.contextmanager
    def on(self, way: str) -> Iterator[None]:
        """Stacks are sampled as in the first seconds of a process or as later."""
        from rankscope.base.clock import now_ns
        from rankscope.capture import observer
        from rankscope.capture.config import Config
        from rankscope.capture.sources import stacks

        stacks.FIRST_NS = 0 if way == "observed" else NEVER_NS
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            agent = observer.start(Config(ring_folders=(folder,)), now_ns())
            agent.open()
            agent.step = self.step
            agent.wake = 0
            agent.sampled = False
            schedules = {s.name: s._schedule for s in agent.sources if hasattr(s, "_schedule")}
            for name, schedule in schedules.items():
                schedule._spacing = self.spacings.get(name, schedule._spacing)
            try:
                yield
            finally:
                self.step = agent.step
                self.spacings = {name: schedule._spacing for name, schedule in schedules.items()}
                observer.stop()


def sgd(model: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def train(
    model: Any, width: int, batch: int, steps: int, traceml: Any, *, settling: int, optimizer: Any = None
) -> dict[str, float]:
    """Median step time and mean CPU time of a step, in ms, without the first `settling` ones."""
    optimizer = optimizer or sgd(model)
    loss_of = nn.CrossEntropyLoss()
    # One batch, read again and again: fetching it stays cheap however large it is.
    one = torch.randn(batch, width), torch.zeros(batch, dtype=torch.long)
    marks = []
    cpu = 0
    dist.barrier()
    for i, (x, y) in enumerate(DataLoader(OneBatch(one, steps), batch_size=None)):
        if i == settling:
            cpu = time.process_time_ns()
        if i >= settling:
            marks.append(time.perf_counter_ns())
        with traceml.trace_step(model) if traceml else contextlib.nullcontext():
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
    cpu = time.process_time_ns() - cpu
    times = [b - a for a, b in pairwise(marks)] or [0]
    return {"step_ms": statistics.median(times) / 1e6, "cpu_ms": cpu / max(1, steps - settling) / 1e6}


class OneBatch(torch.utils.data.Dataset[Any]):
    """The same batch at every index."""

    def __init__(self, tensors: Any, length: int) -> None:
        self.tensors, self.length = tensors, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.tensors


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
