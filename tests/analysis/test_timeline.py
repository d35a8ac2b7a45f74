"""Nested spans become segments that neither overlap nor leave a gap."""

import numpy as np
import pytest

from rankscope.analysis.ranks import find_ranks
from rankscope.analysis.tables import make_tables
from rankscope.analysis.timeline import COMPILE, GC, HOOK, build
from rankscope.records.collective import Collective, CommunicationCode, CommunicationWait
from rankscope.records.host import Compile, GcPause
from rankscope.records.loading import BatchWait
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Backward, Forward, OptimizerStep, Span, Step
from rankscope.testing.known_runs import FAULTS, HEALTHY, known_run
from rankscope.testing.writer import Writer


def timeline_of(*records):
    """The timeline of one rank from (kind, begin, end, fields)."""
    writer = Writer(Process(1))
    for kind, begin, end, fields in records:
        writer.put(kind, begin, end, 0, **fields)
    tables = make_tables(np.array(writer.rows, ROW_DTYPE), writer.payloads())
    return build(tables, find_ranks(tables)[0])


def shown(own):
    """(start, end, phase, detail or collective) of each segment."""
    return [
        (int(s["start"]), int(s["end"]), own.phases[int(s["phase"])], int(s["collective"]), int(s["detail"]))
        for s in own.segments
    ]


FORWARD = (Forward, 100, 200, {"training": 1, "grad": 1, "model": "Net", "elements": 8})


def test_what_no_span_covers_is_other():
    own = timeline_of((BatchWait, 10, 90, {}), FORWARD, (OptimizerStep, 250, 300, {}))

    assert shown(own) == [
        (10, 90, "data", -1, 0),
        (90, 100, "other", -1, 0),
        (100, 200, "forward", -1, 0),
        (200, 250, "other", -1, 0),
        (250, 300, "optimizer", -1, 0),
    ]


def test_a_pause_keeps_the_phase_that_it_falls_into():
    own = timeline_of(FORWARD, (GcPause, 120, 150, {}), (Compile, 160, 170, {}))

    assert shown(own) == [
        (100, 120, "forward", -1, 0),
        (120, 150, "forward", -1, GC),
        (150, 160, "forward", -1, 0),
        (160, 170, "forward", -1, COMPILE),
        (170, 200, "forward", -1, 0),
    ]


def test_a_pause_between_phases_is_other():
    own = timeline_of(FORWARD, (GcPause, 220, 230, {}), (OptimizerStep, 240, 250, {}))

    assert shown(own)[2] == (220, 230, "other", -1, GC)


def test_the_end_of_a_ddp_backward_waits_for_its_last_reduction():
    own = timeline_of(
        (Backward, 100, 300, {"last_enter_ns": 240, "collectives": 2}),
        (Collective, 150, 155, {"in_backward": 1, "sequence": 0}),
        (CommunicationCode, 230, 240, {"name": "hook"}),
        (Collective, 240, 245, {"in_backward": 1, "sequence": 1}),
    )

    assert shown(own) == [
        (100, 150, "backward", -1, 0),
        (150, 155, "backward", -1, 0),
        (155, 230, "backward", -1, 0),
        (230, 240, "communication", -1, HOOK),
        (240, 245, "backward", -1, 0),
        (245, 300, "communication", 1, 0),
    ]


def test_a_wait_belongs_to_the_collective_before_it_and_a_call_that_blocks_waits_itself():
    own = timeline_of(
        (Collective, 100, 110, {"sequence": 0}),
        (CommunicationWait, 112, 150, {"sequence": 0}),
        (Collective, 160, 190, {"sequence": 1, "name": "barrier"}),
    )

    assert shown(own) == [
        (100, 110, "communication", 0, 0),
        (110, 112, "other", -1, 0),
        (112, 150, "communication", 0, 0),
        (150, 160, "other", -1, 0),
        (160, 190, "communication", 1, 0),
    ]


def test_a_call_in_the_nanosecond_in_which_a_wait_ends_does_not_take_its_place():
    own = timeline_of(
        (Collective, 100, 110, {"sequence": 0}),
        (CommunicationWait, 110, 150, {"sequence": 0}),
        (Collective, 150, 160, {"sequence": 1}),
    )

    assert [collective for *_, collective, _ in shown(own)] == [0, 0, 1]


def test_an_inner_span_that_ends_late_is_cut_at_the_outer_end():
    own = timeline_of(FORWARD, (GcPause, 180, 205, {}), (OptimizerStep, 210, 220, {}))

    assert shown(own) == [
        (100, 180, "forward", -1, 0),
        (180, 200, "forward", -1, GC),
        (200, 210, "other", -1, 0),
        (210, 220, "optimizer", -1, 0),
    ]


def test_spans_of_the_user_are_phases_of_their_own():
    own = timeline_of(FORWARD, (Span, 210, 220, {"name": "tokenise"}), (OptimizerStep, 230, 240, {}))

    assert shown(own)[2] == (210, 220, "tokenise", -1, 0)


def test_forwards_without_gradient_of_a_trained_model_evaluate_and_their_batches_too():
    held = {"training": 0, "grad": 0, "model": "Net", "elements": 8}
    other = {"training": 0, "grad": 0, "model": "Teacher", "elements": 8}
    own = timeline_of(
        FORWARD,
        (OptimizerStep, 210, 220, {}),
        (BatchWait, 230, 240, {}),
        (Forward, 250, 260, held),
        (BatchWait, 270, 280, {}),
        (Forward, 290, 300, other),
    )

    assert [phase for _, _, phase, *_ in shown(own) if phase != "other"] == [
        "forward", "optimizer", "evaluation", "evaluation", "data", "forward",
    ]  # fmt: skip


def test_steps_are_no_segments():
    assert shown(timeline_of((Step, 0, 300, {}), FORWARD)) == [(100, 200, "forward", -1, 0)]


@pytest.mark.parametrize("name", [*HEALTHY, *FAULTS])
def test_segments_follow_one_another(name):
    facts = known_run(name).facts

    for own in facts.timelines:
        assert (own.segments["start"][1:] == own.segments["end"][:-1]).all()
        assert (own.segments["end"] > own.segments["start"]).all()
