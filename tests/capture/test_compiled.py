"""torch.compile, export, fx and jit give what they give without observation, and compilations are seen."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def both(observed, tmp_path_factory):
    program = str(observed.PROGRAMS / "compiled.py")
    folder = tmp_path_factory.mktemp("compiled")
    child = observed.start(folder, program)
    bare = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    run = observed.finish(child, folder)
    assert (bare.returncode, run.code) == (0, 0), bare.stderr + run.errors
    return observed.Run(0, bare.stdout, "", []), run


WAYS = ["wrapper", "in_place", "function", "static", "initialiser", "optimizer", "exported", "traced"]


@pytest.mark.parametrize("what", WAYS)
def test_graphs_breaks_recompilations_and_values_are_the_same(both, what):
    bare, run = ([s for s in one.said if s["what"] == what] for one in both)

    assert run == bare
    assert len(run) == 1


def test_a_compilation_names_function_and_guard(both, observed):
    (seen,) = both[1].seen
    compiles = seen.of("compile")

    forward = [c for c in compiles if c.name.endswith(":forward")]
    assert forward
    assert any(c.reason for c in forward)
    assert all(str(observed.PROGRAMS / "compiled.py") in c.name for c in forward)


def test_compiled_models_are_told_from_others(both):
    (seen,) = both[1].seen

    assert {f.compiled for f in seen.of("forward")} == {0, 1}
    assert [s.micro_batches for s in seen.of("step")][:4] == [1, 1, 1, 1]
