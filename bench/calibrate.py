"""How much more observation costs than its hooks can time themselves: bare and observed steps in turn, in one process.

    [torchrun --standalone --nproc-per-node 2] bench/calibrate.py [--size 5|20|100] [--batch N] [--rounds N]

Prints the CPU time that a step costs more, what the hooks count (`whole_cost_ns` in
src/rankscope/capture/self_cost.py), and their ratio, which should be 1. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from train import WIDTH, OneBatch

from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config
from rankscope.recorder.ring_reader import RingReader
from rankscope.records.training import Step

STEPS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, choices=sorted(WIDTH), default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sample-hz", type=float, default=0.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    # In shared memory, where rings lie.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        else:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        step = program(WIDTH[args.size], args.batch)
        step(STEPS)
        more, whole, own = [], [], []
        for number in range(args.rounds):
            # Bare first, then observed first: a drift of the machine meets both alike.
            first = step(STEPS) if number % 2 else None
            observed, timed = observe(step, Path(folder), args.sample_hz)
            bare = first or step(STEPS)
            more.append(observed[0] - bare[0])
            whole.append(observed[1] - bare[1])
            own += timed
        if dist.get_rank() == 0:
            show(more, whole, statistics.median(own), bare)
        dist.barrier()
        dist.destroy_process_group()


def show(more: list[float], whole: list[float], timed_ns: float, bare: tuple[float, float]) -> None:
    print(f"a bare step takes {bare[0] / 1000:.0f} µs CPU of its thread, {bare[1] / 1000:.0f} µs of its process;")
    for name, costs in (("thread", more), ("process", whole)):
        low, cost, high = statistics.quantiles(costs, n=4)
        print(f"observed, {cost / 1000:.1f} µs more of its {name}'s (quartiles {low / 1000:.1f} to {high / 1000:.1f}),")
        print(f"  where hooks count {timed_ns / 1000:.1f} µs: {cost / timed_ns:.2f} times as much")


def program(width: int, batch: int) -> Any:
    """A function that trains for some steps; CPU time of a step of this thread (median) and process (mean), in ns."""
    layers = [m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    tensors = torch.randn(batch, width), torch.zeros(batch, dtype=torch.long)

    def step(count: int) -> tuple[float, float]:
        marks = []
        dist.barrier()
        begin = time.process_time_ns()
        for x, y in DataLoader(OneBatch(tensors, count), batch_size=None):
            marks.append(time.thread_time_ns())
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
        process = (time.process_time_ns() - begin) / count
        return statistics.median(b - a for a, b in pairwise(marks)), process

    return step


def observe(step: Any, folder: Path, sample_hz: float) -> tuple[tuple[float, float], list[int]]:
    """(CPU times of a step under observation, what the hooks timed in each step)."""
    agent = observer.start(Config(ring_folders=(str(folder),), sample_hz=sample_hz, budget=1.0), now_ns())
    agent.open()
    agent.step = 100  # no deep step comes
    for call in agent.on_step:
        call()
    cost = step(STEPS)
    observer.stop()
    own: list[int] = []
    for path in folder.glob("*.ring"):
        reader = RingReader(path)
        news, _ = reader.read()
        for _, rows in news:
            own += [int(row["c"]) for row in rows[rows["kind"] == Step.code] if row["c"]][1:]
        reader.close()
        path.unlink()
    return cost, own


if __name__ == "__main__":
    main()
