"""One rank of a real `torchrun` is stopped by SIGSTOP while it trains."""

import os
import signal
import sys
import time

import pytest

TRAIN = """
import os, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def pause():
    time.sleep(0.02)

for step in range(5000):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    pause()
    if step == 40 and rank == 1:
        with open("pid", "w") as file:
            file.write(str(os.getpid()))
        os.rename("pid", "training")
"""


@pytest.mark.slow
def test_a_stopped_rank_is_told_of_while_its_peers_wait_and_first_in_the_report(playground):
    (playground.folder / "stops.py").write_text(TRAIN)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "stops.py")
    process = playground.start(*torchrun, options=("--on-hang", "stop"))
    playground.wait_for_training()
    os.kill(int((playground.folder / "training").read_text()), signal.SIGSTOP)
    begin, said = time.monotonic(), b""
    while b"stuck-rank" not in said:
        line = process.stderr.readline()
        assert line, said.decode()
        said += line
    seconds = time.monotonic() - begin
    done = playground.finish(process)

    first = playground.report().findings[0]
    assert b"critical, stuck-rank, rank 1" in said
    assert seconds < 15
    assert (first.cause, first.ranks) == ("stuck-rank", (1,))
    assert b"dead-rank" not in done.stderr
    playground.nothing_is_left()
