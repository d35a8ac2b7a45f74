"""Every millisecond of a step has an owner, and it is never the one who waits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rankscope.analysis.facts import Facts
from rankscope.base.manifest import Manifest
from rankscope.report.build import build_report
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.loader import Loader
from rankscope.testing.parts import Code, CommunicationHook, Evaluate, Exchange, GcPause, Reduce, Save
from rankscope.testing.runs import RunBuilder

MANIFEST = Manifest("r", "r", ("python", "train.py"), "2026-01-01T00:00:00Z")
POINTS = ("before-data", "before-forward", "in-forward", "after-forward", "in-backward", "after-backward", "after-step")


PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


@st.composite
def parts(draw, ranks):
    some = draw(st.sets(st.integers(0, ranks - 1), min_size=1))
    every, ms = draw(st.integers(1, 5)), draw(st.floats(0.1, 40))
    kind = draw(st.sampled_from(["code", "gc", "save", "evaluate", "reduce", "exchange"]))
    if kind == "code":
        return Code(ms=ms, ranks=some, every=every, at=draw(st.sampled_from(POINTS)))
    if kind == "gc":
        return GcPause(ms=ms, ranks=some, every=every, at=draw(st.sampled_from(POINTS)))
    if kind == "save":
        return Save(ms=ms, flush_ms=ms / 2, every=every, savers=some, barrier_ms=draw(st.sampled_from([None, 0.5])))
    if kind == "evaluate":
        return Evaluate(batches=3, forward_ms=ms / 3, every=every, ranks=some)
    if kind == "exchange" and ranks > 1:
        source, target = draw(st.permutations(range(ranks)))[:2]
        return Exchange(source=source, target=target, transfer_ms=ms / 10, every=every)
    if ranks > 2 and draw(st.booleans()):
        return Reduce(calls=2, transfer_ms=ms / 20, ranks=(0, 1), members=(0, 1), group="group:pair", every=every)
    return Reduce(calls=draw(st.integers(1, 4)), transfer_ms=ms / 20, every=every)


@st.composite
def builders(draw):
    ranks = draw(st.integers(1, 4))
    times = st.dictionaries(st.integers(0, ranks - 1), st.floats(0.5, 60), max_size=ranks)
    workers = draw(st.integers(0, 3))
    return RunBuilder(
        ranks=ranks,
        steps=draw(st.integers(3, 14)),
        forward_ms=draw(times),
        backward_ms=draw(times),
        optimizer_ms=draw(times),
        transfer_ms=draw(st.floats(0.1, 30)),
        buckets=draw(st.integers(1, 4)),
        micro_batches=draw(st.integers(1, 3)),
        no_sync=draw(st.booleans()),
        sharded_layers=draw(st.sampled_from([0, 0, 2])),
        loader=draw(st.sampled_from([None, Loader(draw(st.floats(0.1, 80)), workers=workers, epoch=4)])),
        hook=draw(st.sampled_from([None, CommunicationHook(ms=draw(times))])),
        parts=tuple(draw(st.lists(parts(ranks), max_size=3))),
        start_ms={r: draw(st.floats(100, 900)) for r in range(ranks)},
        noise=draw(st.sampled_from([0.0, 0.3])),
    )


random_runs = settings(max_examples=40, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])


@random_runs
@given(builders())
def test_the_pieces_of_a_step_follow_one_another_and_fill_it(builder):
    found = Facts(builder.build().tables).attribution

    for step, begin, end in zip(found.steps, found.start, found.end, strict=True):
        mine = found.pieces[found.pieces["step"] == step]
        assert mine["end"][0] == end
        assert mine["start"][-1] == begin
        assert (mine["start"][:-1] == mine["end"][1:]).all()


@random_runs
@given(builders())
def test_the_steps_are_those_that_were_simulated(builder):
    run = builder.build()
    facts = Facts(run.tables)

    assert facts.span_ns == run.span_ns(facts.warm_up)
    assert sum(facts.charges.values()) == facts.span_ns


@random_runs
@given(builders())
def test_waiting_is_never_charged_to_the_one_who_waits(builder):
    facts = Facts(builder.build().tables)

    for piece in facts.attribution.pieces:
        rank, segment = int(piece["rank"]), int(piece["segment"])
        if segment < 0:
            continue
        collective = int(facts.timelines[rank].segments["collective"][segment])
        if collective >= 0 and facts.matches.last_rank[rank][collective] not in (-1, rank):
            entered = facts.matches.last_enter[rank][collective]
            # Who sends is done when the message has left, and does not wait for who receives it later.
            waits = entered <= facts.timelines[rank].segments["end"][segment]
            assert piece["start"] >= entered or not waits


@random_runs
@given(builders())
def test_the_budget_of_the_report_adds_up_to_the_mean_step(builder):
    facts = Facts(builder.build().tables)

    step = build_report(facts, MANIFEST).step

    assert sum(line.ms for line in step.budget) == pytest.approx(facts.span_ns / len(facts.steps) / 1e6, rel=1e-3)
    assert sum(line.share for line in step.budget) == pytest.approx(1, rel=1e-3)


def test_a_late_rank_is_charged_and_its_peer_is_not():
    facts = replace(BASE, forward_ms={1: 40.0}).build().facts

    per_step = {key: round(ns / len(facts.steps) / 1e6, 2) for key, ns in facts.charges.items()}

    assert per_step == {
        (1, "data"): 0.3,
        (1, "forward"): 40.0,
        (1, "backward"): 30.02,
        (1, "other"): 0.06,
        (0, "communication"): 0.8,
        (0, "optimizer"): 4.0,
        (0, "other"): 0.03,
    }


def test_a_checkpoint_is_charged_to_the_rank_that_saves():
    facts = known_run("checkpoints with a barrier").facts

    assert facts.charged("checkpoint", [0]) * facts.span_ns == pytest.approx(4 * 500e6, rel=1e-3)
    assert facts.charged("checkpoint", [1]) == 0


def test_ranks_that_are_last_in_turn_are_charged_in_turn():
    facts = replace(BASE, forward_ms=lambda r, s: 45.0 if s % 2 == r else 15.0).build().facts

    forward = [facts.charges[p, "forward"] / len(facts.steps) / 1e6 for p in range(2)]

    assert forward == [22.5, 22.5]


def test_steps_start_where_the_last_rank_ended_the_one_before():
    facts = replace(BASE, optimizer_ms={1: 9.0}).build().facts

    assert np.all(facts.attribution.start[1:] == facts.attribution.end[:-1])
    assert set(facts.step_ns.tolist()) == {55_214_000}
