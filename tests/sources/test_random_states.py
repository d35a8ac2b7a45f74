"""Random generators in loader workers."""

import random
import subprocess
import sys

import numpy
import torch

from rankscope.capture.random_states import fingerprints

PROGRAM = """
import sys
import numpy
import torch
from torch.utils.data import DataLoader, Dataset
from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config

observer.start(Config(ring_folders=(sys.argv[1],)), now_ns()).open()

class Crop:
    def __init__(self):
        self.rng = numpy.random.RandomState(0)

class Images(Dataset):
    def __init__(self):
        self.transforms = [Crop()]
        self.unused = torch.Generator()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transforms[0].rng.rand()

for batch in DataLoader(Images(), batch_size=1, num_workers=2):
    pass
"""


def test_what_a_dataset_holds_is_seen_in_each_worker(observed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, program, tmp_path], check=True)

    seen = [s for s in observed.read(tmp_path) if s.process.role == "loader-worker"]
    states = {
        name: [[r.state for r in s.of("random_state", name)] for s in seen]
        for name in ("Crop.rng", "Images.unused", "torch", "numpy", "random")
    }
    first, second = states["Crop.rng"]
    assert first == second
    assert len(set(first)) == 3
    assert [len(set(mine)) for mine in states["Images.unused"]] == [1, 1]
    assert len({mine[0] for mine in states["torch"]}) == len({mine[0] for mine in states["numpy"]}) == 2
    assert {r.place.endswith("Images.__getitem__") for s in seen for r in s.of("random_state")} <= {True}


def test_reading_a_state_draws_nothing_and_drawing_stays_in_its_stream():
    for make in (
        lambda: random.Random(1),
        lambda: numpy.random.RandomState(1),
        lambda: numpy.random.default_rng(1),
        lambda: numpy.random.Generator(numpy.random.Philox(1)),
        lambda: torch.Generator().manual_seed(1),
    ):
        one, other = make(), make()
        before = fingerprints(one)
        assert fingerprints(one) == before == fingerprints(other)
        draw = (lambda g: torch.rand(1, generator=g)) if isinstance(one, torch.Generator) else lambda g: g.random()
        assert draw(one) == draw(other)
        draw(other)
        first, further = fingerprints(one), fingerprints(other)
        assert (before[0] != first[0] != further[0], first[1] == further[1]) == (True, True)
