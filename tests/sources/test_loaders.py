"""The batch that a loader worker was fetching when it died."""

import subprocess
import sys

from rankscope.recorder.ring_reader import RingReader
from rankscope.records.loading import PendingFetch

PROGRAM = """
import os, signal, sys
import torch
from torch.utils.data import DataLoader, Dataset
from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config

observer.start(Config(ring_folders=(sys.argv[1],)), now_ns()).open()

class Files(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 21:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1)

for batch in DataLoader(Files(), batch_size=4, num_workers=1):
    pass
"""


def test_the_batch_that_kills_a_worker_is_noted(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program, tmp_path], check=False, capture_output=True)

    assert done.returncode == 1
    found = []
    for path in tmp_path.glob("*.ring"):
        reader = RingReader(path)
        found += [slot for slot in reader.pending() if slot["kind"] == PendingFetch.code]
        reader.close()
    (slot,) = found
    assert (slot["a"], int(slot["c"]) & 0xFFFF, int(slot["c"]) >> 16) == (4, 1, 20)
