"""What each hook costs a training thread: CPU time with and without observation, in one process, in turn.

    python bench/hooks.py            one table, about 20 s
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config
from rankscope.capture.ring import Ring

ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print numbers for bench/overhead.py")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        costs = {"record": record_ns(Path(folder)), **hook_costs(folder)}
        dist.destroy_process_group()
    if args.json:
        json.dump(costs, sys.stdout)
        return
    for name, cost in costs.items():
        print(f"{name:28} {cost:8.0f} ns")


def record_ns(folder: Path) -> float:
    """One `put` on the hot path: a clock reading is not part of it."""
    ring = Ring(folder / f"{now_ns()}.ring")
    put = ring.lane()

    def many() -> None:
        for _ in range(1000):
            put(1, 2, 3, 4, 5, 6, 7, 8)

    def loop() -> None:
        for _ in range(1000):
            pass

    return (cheapest(many) - cheapest(loop)) / 1000


def hook_costs(folder: str) -> dict[str, float]:
    """Cost of observing one call of each kind: the cheapest observed round less the cheapest bare one."""
    calls = programs()
    bare = {name: cheapest(call) for name, (call, _) in calls.items()}
    agent = observer.start(Config(ring_folders=(folder,), sample_hz=0), now_ns())
    agent.open()
    agent.deep = False
    observed = {}
    for name, (call, _) in calls.items():
        call()
        agent.deep = False
        observed[name] = cheapest(call)
    observer.stop()
    return {name: (observed[name] - bare[name]) / count for name, (_, count) in calls.items()}


def programs() -> dict[str, tuple[Callable[[], None], int]]:
    """Name -> (a call, how many times it does the thing)."""
    x = torch.ones(8, 8)
    leaf = torch.nn.Identity()
    nested = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(20)])
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    weight.grad = torch.zeros(2)
    loss = (weight * 1).sum()
    small = torch.ones(1)
    loader = DataLoader(TensorDataset(torch.ones(200, 1)), batch_size=1)

    def repeat(call: Callable[[], Any], times: int = 100) -> Callable[[], None]:
        def many() -> None:
            for _ in range(times):
                call()

        return many

    def read() -> None:
        for _ in loader:
            pass

    return {
        "root forward": (repeat(lambda: leaf(x)), 100),
        "module inside (not deep)": (repeat(lambda: nested(x)), 2000),
        "backward": (repeat(lambda: loss.backward(retain_graph=True)), 100),
        "optimizer and step": (repeat(optimizer.step), 100),
        "next batch and fetch": (read, 200),
        "all_reduce and wait": (repeat(lambda: dist.all_reduce(small)), 100),
        "all_reduce, async": (repeat(lambda: dist.all_reduce(small, async_op=True)), 100),
        "barrier": (repeat(dist.barrier), 100),
        "torch.nn.init": (repeat(lambda: torch.nn.init.zeros_(small)), 100),
    }


def cheapest(call: Callable[[], None]) -> float:
    """CPU time of this thread for one call, in ns: the least of many, which is the one nobody disturbed."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.thread_time_ns()
        call()
        best = min(best, time.thread_time_ns() - begin)
    return best


if __name__ == "__main__":
    main()
