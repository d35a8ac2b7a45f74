"""What is recorded so far, brought into the store beside a run that goes on."""

import json
from types import SimpleNamespace

from rankscope.base.rundir import RunDir
from rankscope.cli.commands.collect import tell, tell_stall
from rankscope.cli.recording import Recording
from rankscope.store.open import open_store
from rankscope.testing.stops import BACKWARD, BARRIER, HEALTHY_STOPS, WAIT, ranks, stopped


def test_takes_what_the_recorder_has_put_down(rankscope, add_run):
    run = RunDir(add_run("20260101-100000-aa", finished=False))
    recording = Recording(run, supervised=True)
    with recording:
        pass

    code, _, error = rankscope("collect", str(run.root))

    assert (code, error) == (0, "")
    assert not list(run.spool.glob("*.frame"))
    with open_store(run.store) as store:
        assert store.query("SELECT count() AS n FROM payloads").to_pylist() == [{"n": 1}]
    assert not run.report.exists()


def test_takes_the_request_away_even_where_no_report_can_be_made(rankscope, add_run):
    run = RunDir(add_run("20260101-100000-aa", finished=False))
    run.request.touch()
    run.manifest.write_text("{")

    code, _, error = rankscope("collect", str(run.root), "--report")

    assert code == 2 and "run.json" in error
    assert not run.request.exists()


def test_tells_each_finding_once(tmp_path):
    run = RunDir(tmp_path)
    finding = SimpleNamespace(id="F1", cause="slow-code", kind="performance", ranks=(1,), severity="warning")
    note = SimpleNamespace(id="F2", cause="gc-pause", kind="performance", ranks=(), severity="info")
    report = SimpleNamespace(findings=[finding, note], run=SimpleNamespace(steps=40))

    tell(run, report)
    finding.id = "F3"
    tell(run, report)

    assert _alerts(run) == [
        {"finding": "F1", "cause": "slow-code", "ranks": [1], "step": 40, "hang": False, "attempt": 1}
    ]


def test_a_failure_that_becomes_the_reason_of_a_hang_is_told_as_such_without_being_shown_again(tmp_path):
    run = RunDir(tmp_path)
    finding = SimpleNamespace(id="F1", cause="stuck-rank", kind="failure", ranks=(1,), severity="critical")
    report = SimpleNamespace(findings=[finding], run=SimpleNamespace(steps=40))

    tell(run, report)
    for _ in range(2):
        tell(run, report, hangs=True)

    about = {"cause": "stuck-rank", "ranks": [1], "step": 40, "attempt": 1}
    assert _alerts(run) == [{"finding": "F1", **about, "hang": False}, {**about, "hang": True}]


def test_the_next_attempt_is_told_of_anew(tmp_path):
    run = RunDir(tmp_path)
    finding = SimpleNamespace(id="F1", cause="stuck-rank", kind="failure", ranks=(1,), severity="critical")
    report = SimpleNamespace(findings=[finding], run=SimpleNamespace(steps=40))

    tell(run, report, hangs=True)
    tell(run, report, hangs=True, attempt=2)

    assert [(entry["attempt"], entry["hang"]) for entry in _alerts(run)] == [(1, True), (2, True)]


def _alerts(run):
    return [json.loads(line) for line in run.alerts.read_text().splitlines()]


def test_a_stall_is_told_with_what_each_rank_does(tmp_path):
    run = RunDir(tmp_path)
    first, second, third = made = ranks(3)
    for one, place in ((first, BACKWARD), (third, BACKWARD), (second, BARRIER)):
        one.call("barrier" if one is second else "allreduce", place)
        one.stand(8, place, below=WAIT)

    tell_stall(run, stopped(made))

    assert json.loads(run.alerts.read_text())["stall"] == [
        "rankscope: no progress for 8.00 s, after 40 steps",
        "  ranks 0, 2 wait in allreduce 44 of all ranks, main (train.py:30), for 8.00 s",
        "  rank 1 waits in barrier 44 of all ranks, main (train.py:60), for 8.00 s",
    ]


def test_a_long_checkpoint_is_shown(tmp_path):
    run = RunDir(tmp_path)

    tell_stall(run, HEALTHY_STOPS["one rank saves for two minutes"]())

    assert json.loads(run.alerts.read_text())["stall"][1:] == [
        "  rank 0 sleeps in save (train.py:70) for 2 min 00 s",
        "  rank 1 waits in barrier 44 of all ranks, main (train.py:60), for 2 min 00 s",
    ]


def test_ranks_that_get_on_are_not_told_of(tmp_path):
    run = RunDir(tmp_path)

    tell_stall(run, HEALTHY_STOPS["all ranks come to their end"]())

    assert not run.alerts.exists()
