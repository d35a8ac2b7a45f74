"""Transfers that dominate the step on all ranks."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.communication_bound import CommunicationBound
from rankscope.testing.checks import Named, evidence_of, found_by
from rankscope.testing.known_runs import BASE, known_run, slower


def test_says_how_much_of_the_step_is_transfer():
    run = known_run("slow network")

    assert found_by(CommunicationBound, run) == [
        Named("communication-bound", "warning", (0, 1), True, "communication", "collectives",
              "/home/user/train.py:45:main", pytest.approx(0.5897, abs=0.001))
    ]  # fmt: skip
    shown = evidence_of(CommunicationBound().examine(run.facts))
    assert shown["transfer time on the critical path, per step"] == pytest.approx(71.06, abs=0.05)
    assert shown["bytes communicated by a rank in a step"] == 2 * (1 << 20) + 4


def test_warns_also_where_all_transfers_are_alike():
    run = replace(BASE, transfer_ms=70.0).build()

    assert [f.severity for f in found_by(CommunicationBound, run)] == ["warning"]


@pytest.mark.parametrize(
    "name",
    ["two ranks", "metrics reduced one by one", "accumulation without no_sync", "slow path of rank 1", "slow device"],
)
def test_is_silent_where_transfers_are_short(name):
    assert found_by(CommunicationBound, known_run(name)) == []


def test_is_silent_where_ranks_wait_for_a_late_one():
    assert found_by(CommunicationBound, slower({1: 4.0}).build()) == []


def test_is_silent_where_one_rank_alone_takes_long():
    assert found_by(CommunicationBound, replace(BASE, transfer_ms={1: 90.0}).build()) == []


def test_cannot_examine_one_rank():
    with pytest.raises(CannotExamine, match="one rank"):
        found_by(CommunicationBound, known_run("one process"))


SHORT = replace(BASE, forward_ms=0.4, backward_ms=0.6, optimizer_ms=0.2, loader=None, bucket_bytes=50_000, steps=400)


@pytest.mark.parametrize("transfer_ms, severity", [(1.8, "info"), (9.0, "warning")])
def test_only_remarks_on_transfers_that_may_be_latency_alone(transfer_ms, severity):
    run = replace(SHORT, transfer_ms=transfer_ms, buckets=1).build()

    assert [f.severity for f in found_by(CommunicationBound, run)] == [severity]
    assert not [text for text in evidence_of(CommunicationBound().examine(run.facts)) if "latency" in text]


def test_is_a_remark_where_ranks_share_cpus(monkeypatch):
    run = replace(BASE, transfer_ms=70.0).build()
    monkeypatch.setattr(type(run.facts), "cpus", len(run.facts.ranks) - 1)

    assert [f.severity for f in found_by(CommunicationBound, run)] == ["info"]
