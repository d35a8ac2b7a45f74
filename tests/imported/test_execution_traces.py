"""Collectives of ranks compared by sequence number, or by their place in a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.execution_traces import ExecutionTraces
from rankscope.artefacts.readers.execution_trace import ExecutionTrace as Reader
from rankscope.records.imported.execution_trace import CollectiveCall, ExecutionTrace, Group

WORLD = Group("0", "default_pg", 0, 1, 4)
OPERATIONS = ("allreduce", "broadcast", "allreduce", "_allgather_base", "allreduce")


def trace(
    rank: int | None, calls: list[CollectiveCall], steps: int = 3, groups: tuple[Group, ...] = (WORLD,)
) -> ExecutionTrace:
    return ExecutionTrace(
        file=f"et_{rank}.json",
        rank=rank,
        node=np.arange(10),
        parent=np.zeros(10, np.int64),
        name=np.zeros(10, np.int32),
        names=("aten::mm",),
        step_node=np.arange(steps) * 100,
        step_number=np.arange(steps),
        collectives=tuple(calls),
        groups=groups,
        tensors=0,
        tensor_bytes=0,
        schema="1.1.0",
        process_id=1,
        dropped=0,
        complete=True,
    )


def calls(first: int = 10, steps: int = 3, counted: bool = True) -> list[CollectiveCall]:
    return [
        CollectiveCall(
            100 * s + i, s, 0, first + s * len(OPERATIONS) + i if counted else -1, name, "Float", 100 + i, 100 + i
        )
        for s in range(steps)
        for i, name in enumerate(OPERATIONS)
    ]


def answer(*traces: ExecutionTrace) -> Answer:
    examiner = ExecutionTraces()
    return examiner.examine([examiner.digest(t) for t in traces], None)


def told(given: Answer) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.cause, f.ranks) for f in given.findings]


def test_equal_ranks_are_silent_and_no_verdict():
    given = answer(*(trace(rank, calls()) for rank in range(4)))

    assert (told(given), given.examined, given.world_size) == ([], False, 4)
    assert [what for what, _, _ in given.not_examined] == ["everything that costs time"]


def test_windows_that_begin_and_end_elsewhere_are_no_difference():
    assert told(answer(trace(0, calls()), trace(1, calls()[4:]), trace(2, calls()[:-3]), trace(3, calls()))) == []


def test_names_the_rank_that_calls_something_else():
    changed = calls()
    changed[6] = changed[6]._replace(operation="_reduce_scatter_base")

    given = answer(trace(0, calls()), trace(1, calls()), trace(2, changed), trace(3, calls()))

    assert told(given) == [("collective-order-mismatch", (2,))]
    finding = given.findings[0]
    assert finding.title == (
        "group 0 (default_pg), call 16: ranks 0, 1 and 3 call broadcast; rank 2 calls _reduce_scatter_base"
    )
    assert (finding.first_step, finding.all_ranks, given.examined) == (1, False, True)


def test_of_two_ranks_that_differ_both_are_named():
    changed = calls()
    changed[6] = changed[6]._replace(operation="barrier")

    given = answer(trace(0, calls()), trace(1, changed))

    assert [(f.cause, f.ranks, f.all_ranks) for f in given.findings] == [("collective-order-mismatch", (0, 1), True)]


def test_names_the_rank_with_another_size_or_type():
    for change in ({"in_elements": 7}, {"dtype": "Half"}):
        changed = calls()
        changed[5] = changed[5]._replace(**change)
        given = answer(trace(0, calls()), trace(1, changed), trace(2, calls()))
        assert told(given) == [("collective-shape-mismatch", (1,))]


def test_sizes_of_an_all_to_all_may_differ():
    own = [c._replace(operation="all_to_allv") for c in calls()]

    assert told(answer(trace(0, own), trace(1, [c._replace(in_elements=c.in_elements + 5) for c in own]))) == []


def test_names_the_rank_that_leaves_a_call_out():
    short = calls()
    del short[7]

    given = answer(trace(0, calls()), trace(1, calls()), trace(2, short))

    assert told(given) == [("missing-collective", (2,))]
    assert "rank 2 calls nothing" in given.findings[0].title


def test_without_sequence_numbers_calls_are_matched_in_their_step():
    short = calls(counted=False)
    del short[9]  # the last of step 1

    given = answer(trace(0, calls(counted=False)), trace(1, short), trace(2, calls(counted=False)))

    assert told(given) == [("missing-collective", (1,))]
    assert "call 5 of step 1" in given.findings[0].title


def test_a_rank_that_never_calls_its_group_is_missing():
    given = answer(trace(0, calls()), trace(1, calls()), trace(2, []))

    assert told(given) == [("missing-collective", (2,))]


def test_groups_are_compared_each_for_itself():
    low, high = Group("1", "tp", 0, 1, 2), Group("2", "tp", 2, 1, 2)
    other = [c._replace(operation="broadcast") for c in calls()]

    given = answer(
        trace(0, calls(), groups=(low,)), trace(1, calls(), groups=(low,)),
        trace(2, other, groups=(high,)), trace(3, other, groups=(high,)),
    )  # fmt: skip

    assert told(given) == []


def test_the_same_rank_twice_and_other_jobs_are_not_compared():
    twice = answer(trace(0, calls()), replace(trace(0, calls()), file="copy.json"))
    other = answer(trace(0, calls()), trace(1, calls(), groups=(Group("0", "default_pg", 0, 1, 8),)))

    assert twice.unused == {"et_0.json": "rank 0 is in copy.json as well"}
    assert other.not_examined[0][2] == "their default groups have [4, 8] ranks"
    assert told(twice) == told(other) == []


def test_a_single_trace_is_information_only():
    given = answer(trace(0, calls()))

    assert (told(given), given.examined) == ([], False)
    assert given.not_examined[0][1] == "traces of two ranks of a group"
    assert given.notes[0] == "et_0.json: 10 nodes, 3 steps, schema 1.1.0"


def test_the_real_trace_beside_a_twin_is_silent(data):
    (one,) = Reader().read(data("execution_trace/param/resnet_2gpu_et.json.gz"))

    given = answer(one, replace(one, rank=0, file="rank0.json"))

    assert (told(given), given.world_size) == ([], 2)
    assert "21 collectives in 1 groups" in given.notes[3]
