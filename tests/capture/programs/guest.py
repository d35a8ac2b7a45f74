import gc
import json
import pickle
import random
import sys
import weakref

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives
import torch.utils.data
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankscope
from rankscope.capture import observer

say = {}


def state():
    """Every attribute of every torch module and class, by identity."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name == "torch" or name.startswith("torch."):
            for key, value in list(vars(module).items()):
                found[name, key] = value
                if isinstance(value, type) and value.__module__.startswith("torch"):
                    for attribute, inner in list(vars(value).items()):
                        found[value, attribute] = inner
    return found


def kernels():
    return [torch._C._dispatch_dump(f"c10d::{x}") for x in ("allreduce_", "broadcast_", "send", "barrier")]


class Mistake(Exception):
    pass


class Fails(nn.Module):
    def forward(self, x):
        raise Mistake("forward")


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise Mistake("backward")


class BadData(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise Mistake("data")


def caught(call):
    try:
        call()
    except Mistake as error:
        return str(error)
    return None


def train(model):
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return model, optimizer, loader


import torch._dynamo  # noqa: E402

torch.compile(nn.Linear(1, 1))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
# What torch changes itself when it is used the first time is not ours.
train(nn.Linear(4, 1))
torch.optim.SGD([torch.zeros(1)], lr=1.0)
before = state()
around = (sys.excepthook, list(gc.callbacks), list(sys.meta_path))
dump = kernels()
bare_call, bare_next = nn.Module.__call__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__
random.seed(1), torch.manual_seed(1)
rng = (random.getstate(), torch.get_rng_state())

rankscope.start(config={"sample_hz": 50})
agent = observer.current()
rankscope.start()
say["second start is a no-op"] = observer.current() is agent
say["patched"] = nn.Module.__call__ is not bare_call
dist.all_reduce(torch.ones(1))

model = nn.Linear(4, 1, bias=False)
with torch.no_grad():
    model.weight.zero_()
torch.set_rng_state(rng[1])
model, optimizer, loader = train(model)
say["no random number consumed"] = random.getstate() == rng[0]
# The loader itself draws one base seed an epoch.
torch.set_rng_state(rng[1])
train(model)
after_observed = torch.get_rng_state()

x = torch.ones(2, 4)
y = model(x)
refs = [weakref.ref(x), weakref.ref(y)]
del x, y
say["tensors are freed"] = [r() is None for r in refs]
other = nn.Linear(4, 4)
refs = [weakref.ref(other), weakref.ref(other.weight)]
other(torch.ones(1, 4))
del other
say["models are freed"] = [r() is None for r in refs]
wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
wrapped(torch.ones(1, 2)).sum().backward()
say["pickles"] = [
    type(pickle.loads(pickle.dumps(thing))).__name__
    for thing in (model, optimizer.state_dict(), loader, wrapped, torch.optim.SGD(model.parameters(), lr=1.0))
]
say["exceptions pass"] = [
    caught(lambda: Fails()(torch.ones(1))),
    caught(lambda: FailsInBackward.apply(torch.ones(1, requires_grad=True)).backward()),
    caught(lambda: next(iter(DataLoader(BadData())))),
]
say["state after exceptions"] = [agent.depth, agent.in_backward, agent.in_next]

mine = DataLoader.__iter__


def my_iter(self):
    return mine(self)


DataLoader.__iter__ = my_iter
train(model)
say["swallowed"] = __import__("rankscope.base.guard", fromlist=["Errors"]).Errors.last

rankscope.stop()
say["a user's patch over ours stays"] = DataLoader.__iter__ is my_iter
DataLoader.__iter__ = before[DataLoader, "__iter__"]
after = state()
changed = [f"{owner}.{key}" for (owner, key), value in before.items() if after.get((owner, key)) is not value]
say["changed by start and stop"] = [x for x in changed if not x.endswith(".next_id")]
say["hooks around are back"] = around == (sys.excepthook, list(gc.callbacks), list(sys.meta_path))
say["kernels are back"] = kernels() == dump
torch.set_rng_state(rng[1])
train(model)
say["same random numbers without us"] = torch.equal(after_observed, torch.get_rng_state())
say["unobserved again"] = rankscope.capture.observer.current() is None
dist.destroy_process_group()
print(json.dumps(say))
