"""How much more observation costs than its hooks can time themselves: bare and observed steps in turn, in one process.

    python bench/calibrate.py [--size 5|20|100] [--batch N] [--rounds N]

Prints the CPU time that a step costs more, what the hooks timed, and their ratio: `FACTOR` in
src/rankscope/capture/self_cost.py. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
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
from rankscope.capture.self_cost import FACTOR
from rankscope.recorder.ring_reader import RingReader
from rankscope.records.training import Step

STEPS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, choices=sorted(WIDTH), default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    # In shared memory, where rings lie.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        step = program(WIDTH[args.size], args.batch)
        step(STEPS)
        more, own = [], []
        for _ in range(args.rounds):
            bare = step(STEPS)
            observed, timed = observe(step, Path(folder))
            more.append(observed - bare)
            own += timed
        dist.destroy_process_group()
    cost, timed_ns = statistics.median(more), statistics.median(own) / FACTOR
    spread = statistics.quantiles(more, n=4)
    print(f"a step costs {cost / 1000:.1f} µs more (quartiles {spread[0] / 1000:.1f} to {spread[2] / 1000:.1f}),")
    print(f"its hooks time {timed_ns / 1000:.1f} µs: factor {cost / timed_ns:.2f} (in use: {FACTOR})")


def program(width: int, batch: int) -> Any:
    """A function that trains for some steps; the CPU time of this thread for one of them, the median, in ns."""
    layers = [m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    tensors = torch.randn(batch, width), torch.zeros(batch, dtype=torch.long)

    def step(count: int) -> float:
        marks = []
        for x, y in DataLoader(OneBatch(tensors, count), batch_size=None):
            marks.append(time.thread_time_ns())
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
        return statistics.median(b - a for a, b in pairwise(marks))

    return step


def observe(step: Any, folder: Path) -> tuple[float, list[int]]:
    """(CPU time of a step under observation, what the hooks timed in each step); stack samples are left out."""
    agent = observer.start(Config(ring_folders=(str(folder),), sample_hz=0, budget=1.0), now_ns())
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
            own += [int(row["c"]) for row in rows[rows["kind"] == Step.code]][5:]
        reader.close()
        path.unlink()
    return cost, own


if __name__ == "__main__":
    main()
