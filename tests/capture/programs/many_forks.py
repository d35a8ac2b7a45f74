import os
import time

import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.002)


for _ in range(10):
    train(0.1)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print(f'{{"forked": {time.monotonic_ns()}}}', flush=True)
train(1.0)
