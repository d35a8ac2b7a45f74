"""`--on-nan`: a lost loss is saved for replay, ends the run, or is skipped."""

from __future__ import annotations

import sys

import pytest
import torch

TRAINS = """
import math, torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        return {"x": torch.full((4,), math.nan if index == 41 else index / 60.0)}

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Rows(), batch_size=4):
    optimizer.zero_grad()
    model(batch["x"]).square().mean().backward()
    optimizer.step()
print("finite" if bool(torch.isfinite(model.weight).all()) else "lost")
"""


@pytest.fixture
def nan(playground):
    """Runs the program with options; (exit code, what it printed, what we printed, the run's folder)."""
    (playground.folder / "rows.py").write_text(TRAINS)

    def run(*options: str):
        done = playground.start(sys.executable, "rows.py", options=options)
        out, error = done.communicate(timeout=120)
        (folder,) = [path for path in playground.runs.iterdir() if path.is_dir()]
        return done.returncode, out.decode(), error.decode(), folder

    return run


def test_by_default_nothing_is_saved_and_the_program_goes_on(nan):
    code, out, error, folder = nan()

    assert (code, out.strip(), (folder / "snapshots").exists()) == (0, "lost", False)
    assert "rank 0, step 10: a batch of Rows is not finite (x: 4 of 16 values)" in error


def test_the_batch_and_the_state_of_random_generators_are_saved_and_can_be_loaded(nan):
    code, out, _, folder = nan("--on-nan", "snapshot")

    assert (code, out.strip()) == (0, "lost")
    saved = torch.load(folder / "snapshots" / "rank0-step10.pt")
    assert torch.isnan(saved["batch"]["x"]).sum() == 4
    assert (saved["step"], saved["rank"], saved["torch_rng"].dtype) == (10, 0, torch.uint8)


def test_the_run_is_ended_where_that_was_asked_for(nan):
    code, _, error, _ = nan("--on-nan", "stop")

    assert code != 0
    assert "rank 0, step 10: the loss is not finite (--on-nan stop); ending the command" in error


def test_a_skipped_step_leaves_the_parameters_as_they_were(nan):
    code, out, _, folder = nan("--on-nan", "skip")

    assert (code, out.strip()) == (0, "finite")
    assert [path.name for path in (folder / "snapshots").iterdir()] == ["rank0-step10.pt"]
