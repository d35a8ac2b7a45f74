"""Two ranks learn from data of their own; each says the mean squares of its gradients before and after averaging."""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.Linear(16, 1, bias=False)
alone = torch.nn.Linear(16, 1, bias=False)
alone.load_state_dict(model.state_dict())
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
generator = torch.Generator().manual_seed(rank)
said = []
for _ in range(3):
    x = torch.randn(8, 16, generator=generator)
    optimizer.zero_grad()
    alone.zero_grad()
    alone(x).square().mean().backward()
    wrapped(x).square().mean().backward()
    said.append([float((alone.weight.grad / 2).square().mean()), float(model.weight.grad.square().mean())])
    optimizer.step()
print(json.dumps({"squares": said}))
dist.destroy_process_group()
