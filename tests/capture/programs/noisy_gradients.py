"""Two ranks learn from data of their own; each says the mean squares of its gradients before and after averaging.

With an argument: `summed`, statistics are reduced by Python code within the backward; `hooked`, DDP has a hook.
"""

import json
import os
import sys

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


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        total = grad.sum().reshape(1)
        dist.all_reduce(total)
        return grad


if "hooked" in sys.argv:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    wrapped.register_comm_hook(None, allreduce_hook)
generator = torch.Generator().manual_seed(rank)
said = []
for _ in range(3):
    x = torch.randn(8, 16, generator=generator)
    optimizer.zero_grad()
    alone.zero_grad()
    alone(x).square().mean().backward()
    given = x.clone().requires_grad_()
    out = wrapped(given)
    (Summed.apply(out) if "summed" in sys.argv else out).square().mean().backward()
    said.append([float((alone.weight.grad / 2).square().mean()), float(model.weight.grad.square().mean())])
    optimizer.step()
print(json.dumps({"squares": said}))
dist.destroy_process_group()
