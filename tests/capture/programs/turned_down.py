"""Stack samples are turned off while the program goes on."""

import json
import sys
import time

import torch

import rankscope

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)


def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        (weight * 2).sum().backward()
        optimizer.step()
        time.sleep(0.002)


train(0.8)
eager = sys.getswitchinterval()
rankscope.start(config={"level": "light"})
train(0.4)
print(json.dumps({"eager": eager, "after": sys.getswitchinterval()}))
