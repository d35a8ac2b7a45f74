"""Gradient exchange between neighbours, and the transmit rates of the machines' interfaces."""

# DDP reads the annotations of a hook as objects: no postponed annotations in this module.
import os
import socket

import torch
import torch.distributed as dist

SO_MAX_PACING_RATE = 47  # Linux; the socket module has no name for it
TRANSMIT_BYTES_PER_S = {1: 45_000_000}


def apply_rates(rank: int) -> None:
    """Sets this rank's transmit rate on the connections to its peers, where the table has one."""
    rate = TRANSMIT_BYTES_PER_S.get(rank)
    if rate is None:
        return
    for entry in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                    connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        except OSError:
            continue  # not a socket, or already closed


def exchange(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: averages a bucket by passing it once around the ring."""
    rank, world = dist.get_rank(), dist.get_world_size()
    total = bucket.buffer().div_(world)
    outgoing = total.clone()
    for _ in range(world - 1):
        incoming = torch.empty_like(outgoing)
        sent = dist.isend(outgoing, (rank + 1) % world)
        received = dist.irecv(incoming, (rank - 1) % world)
        sent.wait()
        received.wait()
        total.add_(incoming)
        outgoing = incoming
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(total)
    return future
