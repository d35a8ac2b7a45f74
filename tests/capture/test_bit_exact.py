"""Losses and weights are equal, bit by bit, with and without observation."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both(observed, tmp_path_factory):
    program = str(observed.PROGRAMS / "exact.py")
    run = observed.observe_ranks(tmp_path_factory.mktemp("exact"), program)
    assert run.code == 0, run.errors
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    env["MASTER_PORT"] = str(observed.free_port())
    children = [
        subprocess.Popen([sys.executable, program], env={**env, "RANK": str(r)}, stdout=subprocess.PIPE, text=True)
        for r in range(2)
    ]
    output = "".join(child.communicate(timeout=100)[0] for child in children)
    assert [child.returncode for child in children] == [0, 0]
    return observed.Run(0, output, "", []).said, run


@pytest.mark.parametrize("program", ["dropout", "convolution", "sharded", "compiled"])
def test_losses_and_weights_do_not_change_by_a_bit(both, program):
    bare, observed = ([s for s in said if s["program"] == program] for said in (both[0], both[1].said))

    assert sorted(observed, key=lambda s: s["rank"]) == sorted(bare, key=lambda s: s["rank"])
    assert [len(s["losses"]) for s in bare] == [{"compiled": 12, "convolution": 16}.get(program, 20)] * 2


def test_it_was_observed(both):
    assert [len(s.of("optimizer_step")) for s in both[1].ranks] == [16 + 20 + 20 + 4] * 2
