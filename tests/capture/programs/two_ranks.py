import contextlib
import json
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)


@contextlib.contextmanager
def section(name):
    begin = time.monotonic_ns()
    yield
    end = time.monotonic_ns()
    print(json.dumps({"section": name, "rank": rank, "begin": begin, "end": end}), flush=True)


def reduce_hook(state, bucket):  # the user's hook
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dataset = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
sampler = DistributedSampler(dataset)
with section("ddp"):
    for epoch in range(2):
        sampler.set_epoch(epoch)  # the epoch
        for x, y in DataLoader(dataset, batch_size=2, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()  # ddp backward
            optimizer.step()

with section("no_sync"):
    for i in range(6):
        last = i % 3 == 2
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.randn(2, 4)).sum().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

with section("hook"):
    hooked = DistributedDataParallel(nn.Linear(4, 1))
    hooked.register_comm_hook(None, reduce_hook)
    hooked(torch.randn(2, 4)).sum().backward()

with section("collectives"):
    x = torch.ones(6)
    dist.all_reduce(x)  # all_reduce line
    work = dist.all_reduce(x, async_op=True)
    work.wait()  # wait line
    dist.broadcast(x, 0)
    dist.all_gather([torch.empty(6), torch.empty(6)], x)
    dist.all_gather_into_tensor(torch.empty(12), x)
    dist.reduce_scatter_tensor(torch.empty(3), x)
    dist.all_to_all_single(torch.empty(6), x)
    dist.gather(x, [torch.empty(6), torch.empty(6)] if rank == 0 else None)
    dist.scatter(torch.empty(3), [torch.ones(3), torch.ones(3)] if rank == 0 else None)
    dist.reduce(x, 0)
    dist.barrier()

with section("functional"):
    y = functional.all_reduce(x, "sum", dist.group.WORLD) + 1
    with torch.inference_mode():
        dist.all_reduce(torch.ones(2))

with section("point_to_point"):
    if rank == 0:
        dist.send(torch.ones(3), 1)
        dist.recv(torch.ones(3), 1)
    else:
        dist.recv(torch.ones(3), 0)
        dist.send(torch.ones(3), 0)
    peer = 1 - rank
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.ones(2), peer), dist.P2POp(dist.irecv, torch.ones(2), peer)]
    ):
        work.wait()

with section("groups"):
    alone = [dist.new_group([r]) for r in range(2)][rank]
    both = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(torch.ones(1), group=both)
        dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1), group=alone)

with section("fsdp"):
    sharded = net()
    for layer in sharded:
        fully_shard(layer)
    fully_shard(sharded)
    adam = torch.optim.Adam(sharded.parameters())
    for _ in range(25):
        sharded(torch.randn(2, 4)).sum().backward()
        adam.step()
        adam.zero_grad()
dist.barrier()
dist.destroy_process_group()
