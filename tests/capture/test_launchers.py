"""However the ranks of a program are started, each is seen as the rank that it is."""

import importlib.util
import os
import subprocess
import sys
import time

import pytest

from rankscope.base.rundir import RunDir
from rankscope.store.lock import holder
from rankscope.store.open import open_store

pytestmark = pytest.mark.slow


def when_ended(folder):
    """The store of a run, once its recorder has seen that the program has ended."""
    for _ in range(300):
        if holder(folder) is None:
            return open_store(RunDir(folder).store)
        time.sleep(0.1)
    raise AssertionError("the recorder does not end")


def steps(run):
    return [(s.process.rank, s.process.world_size, len(s.of("step"))) for s in run.ranks]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_mp_spawn(observed, tmp_path, method):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "launched.py"), method, str(tmp_path / "store"))

    assert run.code == 0, run.errors
    assert steps(run) == [(0, 2, 5), (1, 2, 5)]
    assert len({s.process.parent for s in run.ranks}) == 1
    reduced = [[c.sequence for c in s.of("collective", "allreduce") if c.in_backward] for s in run.ranks]
    assert len(reduced[0]) >= 5
    assert reduced[0] == reduced[1]


def test_training_in_a_thread_is_seen(observed, tmp_path):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "launched.py"), "thread")

    assert run.code == 0, run.errors
    (seen,) = run.ranks
    assert [s.micro_batches for s in seen.of("step")] == [1] * 5
    assert {s.lane for s in seen.of("step")} == {s.lane for s in seen.of("optimizer_step")}


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate_launch(observed, tmp_path):
    run = observed.observe(
        tmp_path, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(observed.free_port()),
        str(observed.PROGRAMS / "accelerated.py"),
    )  # fmt: skip

    assert run.code == 0, run.errors
    trained = [s for s in run.ranks if s.of("step")]
    assert [(s.process.rank, s.process.world_size, len(s.of("step"))) for s in trained] == [(0, 2, 4), (1, 2, 4)]
    assert {x.micro_batches for s in trained for x in s.of("step")} == {2}


def test_rankscope_run_with_torchrun_ends_in_the_store(observed, tmp_path):
    command = ["torchrun", "--standalone", "--nproc-per-node", "2", str(observed.PROGRAMS / "ddp.py")]
    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "run", "--no-dashboard", "--runs-dir", str(tmp_path), "--", *command],
        capture_output=True, text=True, timeout=100,
        env={**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    with open_store(RunDir(folder).store) as store:
        found = store.query(
            "SELECT process, count() AS n, min(step) AS first, max(step) AS last FROM slots WHERE kind = 1"
            " GROUP BY process"
        ).to_pylist()
        matched = store.query(
            "SELECT bitAnd(a, 281474976710655) AS sequence, uniqExact(process) AS ranks FROM slots"
            " WHERE kind = 30 AND bitTest(c, 56) GROUP BY sequence"
        ).to_pylist()

    assert [(row["n"], row["first"], row["last"]) for row in found] == [(12, 0, 11), (12, 0, 11)]
    assert [row["ranks"] for row in matched] == [2] * 12


def test_the_sdk_without_rankscope_run(observed, tmp_path):
    (tmp_path / "rankscope.toml").write_text('stages = ["forward", "backward", "optimizer"]\nbudget = "2%"\n')
    done = subprocess.run(
        [sys.executable, str(observed.PROGRAMS / "sdk.py")], capture_output=True, text=True, cwd=tmp_path, timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (said,) = observed.Run(0, done.stdout, "", []).said
    with when_ended(tmp_path / said["folder"]) as store:
        rows = store.query(
            "SELECT kind, name, step, b FROM slots WHERE kind < 40 ORDER BY kind, step, time_ns"
        ).to_pylist()
        texts = store.query(
            "SELECT id, text FROM payloads WHERE kind = 1 AND process IN (SELECT process FROM slots WHERE kind = 1)"
        ).to_pylist()
    names = {t["id"]: t["text"] for t in texts}
    by_kind = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)

    assert [row["step"] for row in by_kind[1]] == list(range(12))
    assert {row["b"] for row in by_kind[1]} == {3}  # observed, and marked by the user
    assert [(names[r["name"]], r["step"]) for r in by_kind[5]] == [("tokenise", i) for i in range(12)]
    assert [names[r["name"]] for r in by_kind[7]] == ["loss", "number"] * 12
    # Modules that match the glob are recorded on each step, all of them on the deep ones.
    assert {names[r["name"]] for r in by_kind[6] if r["step"] == 5} == {"1.0", "1.1"}
    assert {names[r["name"]] for r in by_kind[6] if r["step"] == 4} == {"0", "1", "1.0", "1.1"}
    assert 30 not in by_kind and 20 not in by_kind


def test_after_stop_only_start_observes_again(observed, tmp_path):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "stopped.py"))

    assert run.code == 0, run.errors
    assert [(s["before"], s["stopped"], s["again"]) for s in run.said] == [(True, True, "light")]


def test_a_wrong_file_in_the_working_folder_does_not_reach_a_call_that_needs_no_start(observed, tmp_path, monkeypatch):
    (tmp_path / "rankscope.toml").write_text("nonsense = 1")
    monkeypatch.chdir(tmp_path)
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "bad_config.py"), env={"RANKSCOPE_DEBUG": ""})

    assert run.code == 0, run.errors
    (said,) = run.said
    assert (said["observed"], said["errors"]) == (False, 1)
    assert "unknown key 'nonsense'" in said["last"]
