"""Pieces of Python of 3 ms, each followed by an operator of torch in another function; at last two threads compute."""

import json
import sys
import threading
import time

import torch

torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weight], lr=0.1)


def in_python():
    end = time.perf_counter() + 0.003
    while time.perf_counter() < end:
        pass


def in_torch():
    (torch.ones(8, 64) @ weight).sum().backward()


def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        in_python()
        in_torch()
        optimizer.step()


before = sys.getswitchinterval()
train(3.0)
alone = sys.getswitchinterval()
beside = threading.Thread(target=train, args=(1.0,))
beside.start()
time.sleep(0.6)
together = sys.getswitchinterval()
beside.join()
sys.setswitchinterval(0.001)
train(0.5)

import rankscope  # noqa: E402

rankscope.stop()
print(json.dumps({"before": before, "alone": alone, "together": together, "after": sys.getswitchinterval()}))
