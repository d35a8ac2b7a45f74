"""Replaying the run's own dependency graph gives the run back; without a fault, the run without it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rankscope.analysis import timeline
from rankscope.analysis.facts import Facts
from rankscope.testing.known_runs import BASE, FAULTS, HEALTHY, known_run
from rankscope.testing.parts import Code, Exchange, Reduce
from rankscope.testing.runs import recoverable_share

TRAINED = [name for name in (*HEALTHY, *FAULTS)]


@pytest.mark.parametrize("name", TRAINED)
def test_a_replay_without_change_takes_as_long_as_the_run(name):
    facts = known_run(name).facts
    graph, _ = facts._graph

    assert graph.total() == pytest.approx(facts.span_ns, rel=0.005)


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    st.integers(0, 2),
    st.sampled_from(["forward_ms", "backward_ms", "optimizer_ms"]),
    st.lists(st.floats(5, 60), min_size=9, max_size=9),
)
def test_without_a_phase_of_a_rank_it_takes_as_long_as_a_run_without_it(rank, phase, ms):
    times = {
        "forward_ms": dict(enumerate(ms[:3])),
        "backward_ms": dict(enumerate(ms[3:6])),
        "optimizer_ms": dict(enumerate(ms[6:])),
    }
    run = replace(BASE, ranks=3, steps=60, **times).build()
    times[phase] = {**times[phase], rank: 0.0}
    without = replace(BASE, ranks=3, steps=60, **times).build()
    facts = Facts(run.tables)
    mask = facts.work(rank, phase.removesuffix("_ms"))
    if phase == "backward_ms":  # the call that enqueues a reduction stays
        mask &= facts.timelines[rank].segments["kind"] == 3

    assert facts.gain_without({rank: mask}) == pytest.approx(recoverable_share(run, without), abs=0.02)


def test_removing_work_that_nobody_waits_for_gains_nothing():
    facts = replace(BASE, forward_ms={0: 40.0}).build().facts

    assert facts.gain_without({1: facts.work(1, timeline.FORWARD)}) == pytest.approx(0, abs=0.001)


def test_removing_the_late_rank_s_excess_stops_where_its_peer_becomes_the_last():
    facts = replace(BASE, forward_ms={1: 40.0}).build().facts

    assert facts.gain_without({1: facts.work(1, timeline.FORWARD)}) == pytest.approx(25 / 75.21, abs=0.001)


def test_waits_of_subgroups_are_replayed():
    parts = (
        Code(ms=10.0, ranks=(0,)),
        Reduce(ranks=(0, 1), members=(0, 1), group="group:left", at="before-forward"),
        Reduce(ranks=(2, 3), members=(2, 3), group="group:right", at="before-forward"),
    )
    run = replace(BASE, ranks=4, parts=parts).build()
    without = replace(BASE, ranks=4, parts=parts[1:]).build()
    facts = run.facts
    mask = facts.work(0) & (facts.timelines[0].segments["kind"] == 0) & (facts.timelines[0].durations() > 5e6)

    assert facts.gain_without({0: mask}) == pytest.approx(recoverable_share(run, without), abs=0.002)


def test_waits_for_messages_are_replayed():
    parts = (Code(ms=20.0, ranks=(0,)), Exchange(source=0, target=1, transfer_ms=3.0))
    run = replace(BASE, parts=parts).build()
    without = replace(BASE, parts=parts[1:]).build()
    facts = run.facts
    mask = facts.timelines[0].durations() >= 20e6
    mask &= facts.work(0, timeline.OTHER)

    assert facts.gain_without({0: mask}) == pytest.approx(recoverable_share(run, without), abs=0.002)


def test_a_collective_whose_peer_was_never_seen_does_not_stop_the_replay():
    run = BASE.build()
    lost = (run.rows["process"] == 1001) & (run.rows["kind"] == 30) & (run.rows["step"] == 50)
    facts = Facts(replace(run, rows=run.rows[~lost]).tables)

    assert facts._graph[0].total() == pytest.approx(facts.span_ns, rel=0.005)


def test_durations_can_be_changed_one_by_one():
    facts = replace(BASE, ranks=1).build().facts

    def halved(position, durations):
        mask = facts.work(position, timeline.BACKWARD)
        durations[mask] = (durations[mask] * 0.5).astype(np.int64)
        return durations

    assert facts.gain(halved) == pytest.approx(15 / (15 + 30 + 4 + 0.3 + 0.09), abs=0.001)
