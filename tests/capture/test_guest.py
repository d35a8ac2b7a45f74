"""A guest in the user's process: whatever we change is put back, whatever is the user's stays the user's."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def said(observed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guest")
    env = {**os.environ, "RANKSCOPE_RUNS_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    program = str(observed.PROGRAMS / "guest.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=env, cwd=folder, timeout=100)
    assert done.returncode == 0, done.stderr
    (said,) = observed.Run(0, done.stdout, "", []).said
    return said


def test_start_patches_and_a_second_start_does_nothing(said):
    assert (said["patched"], said["second start is a no-op"]) == (True, True)


def test_stop_restores_everything(said):
    assert said["changed by start and stop"] == []
    assert (said["hooks around are back"], said["kernels are back"], said["unobserved again"]) == (True, True, True)


def test_a_patch_of_the_user_s_is_left_alone(said):
    assert said["a user's patch over ours stays"]


def test_no_random_number_is_consumed(said):
    assert (said["no random number consumed"], said["same random numbers without us"]) == (True, True)


def test_tensors_and_models_are_not_kept_alive(said):
    assert (said["tensors are freed"], said["models are freed"]) == ([True, True], [True, True])


def test_models_optimizers_and_loaders_are_pickled_as_ever(said):
    assert said["pickles"] == ["Linear", "dict", "DataLoader", "DistributedDataParallel", "SGD"]


def test_the_user_s_exceptions_pass_and_leave_nothing_behind(said):
    assert said["exceptions pass"] == ["forward", "backward", "data"]
    assert said["state after exceptions"] == [0, False, False]


def test_nothing_of_ours_failed(said):
    assert said["swallowed"] == ""
