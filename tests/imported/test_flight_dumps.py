"""Who keeps the others, from the dumps of all ranks."""

from __future__ import annotations

import pytest

from rankscope.analysis.imported.examiners.flight_dumps import FlightDumps
from rankscope.artefacts.readers.flight_recorder import FlightRecorder
from rankscope.records.imported.flight_dump import FlightDump, FlightEntry, FlightGroup


def entry(sequence, operation="all_reduce", *, group="0", done=False, size=8, pair=False):
    return FlightEntry(group, sequence, operation, pair, ((size,),), ("Float",), done, 0, "/home/me/train.py:41:step")


def dumps(*per_rank, groups=None):
    groups = groups or {"0": tuple(range(len(per_rank)))}
    return [
        FlightDump(
            file=f"dump_{rank}", rank=rank, version="2.5", entries=tuple(entries),
            groups=tuple(FlightGroup(name, f"GROUP_{name}", ranks, -1, -1) for name, ranks in groups.items()),
        )
        for rank, entries in enumerate(per_rank)
        if entries is not None
    ]  # fmt: skip


def answer(found, world_size=None):
    examiner = FlightDumps()
    return examiner.examine([examiner.digest(dump) for dump in found], world_size)


def causes(found):
    return [(f.cause, f.ranks) for f in answer(found).findings]


def done(*numbers):
    return [entry(number, done=True) for number in numbers]


def test_a_rank_that_does_not_come_is_named():
    found = dumps([*done(1, 2), entry(3)], [*done(1, 2)], [*done(1, 2), entry(3)])

    assert causes(found) == [("missing-collective", (1,))]
    (finding,) = answer(found).findings
    assert finding.title == "rank 1 does not come: ranks 0 and 2 wait in all_reduce number 3 of GROUP_0 (group 0)"
    assert finding.location.line == 41


def test_an_empty_dump_is_evidence_of_a_rank_that_is_stuck():
    assert causes(dumps([*done(1, 2, 3), entry(4)], [], [*done(1, 2, 3), entry(4)])) == [("stuck-rank", (1,))]


def test_a_rank_whose_device_does_not_finish_what_its_peers_have_done():
    found = dumps([*done(1, 2), entry(3)], [*done(1), entry(2)], [*done(1, 2), entry(3)])

    assert causes(found) == [("stuck-rank", (1,))]


def test_a_rank_without_a_dump_is_weaker_evidence():
    found = answer(dumps([*done(1), entry(2)], None, [*done(1), entry(2)]))

    assert [(f.cause, f.ranks, f.confidence) for f in found.findings] == [("dead-rank", (1,), 0.6)]
    assert found.not_examined[0][2] == "there is no dump of rank 1, of 3 ranks"


def test_ranks_that_wait_in_another_group_only_wait():
    groups = {"0": (0, 1, 2, 3), "a": (0, 1), "b": (2, 3)}
    found = dumps(
        [entry(1, done=True), entry(5, group="a")],
        [entry(1, done=True), entry(5, group="a"), entry(6, group="a")],
        [entry(1, done=True), entry(2)],
        [entry(1, done=True), entry(2)],
        groups=groups,
    )
    stopped = dumps(
        [entry(1, done=True), entry(2)], [entry(1, done=True), entry(2)],
        [entry(1, done=True), entry(7, group="b")], [entry(1, done=True)], groups=groups,
    )  # fmt: skip

    assert causes(found) == []  # 0 and 1 have both come to where they stand: that it does not end is not their fault
    assert answer(found).not_examined == (
        (
            "hang", "stacks or logs",
            "ranks 0 and 1 have all come to all_reduce number 5 of GROUP_a (group a), which does not end: the network "
            "or a device; the dumps cannot tell",
        ),
    )  # fmt: skip
    assert causes(stopped) == [("missing-collective", (3,))]


def test_send_and_receive_lead_to_the_partner_that_is_elsewhere():
    found = dumps(
        [entry(1, "recv 0<-1", group="p", pair=True)],  # from rank 2, which is number 1 of the pair
        [entry(8, group="q", done=True)],
        [entry(9, group="q"), entry(1, "send 1->0", group="p", pair=True)],
        groups={"0": (0, 1, 2), "p": (0, 2), "q": (1, 2)},
    )

    assert causes(found) == [("missing-collective", (1,))]


def test_the_numbers_of_a_pair_differ_between_its_ends():
    """A middle stage sends and receives twice as often as the first one: only the last stage is not there."""
    found = dumps(
        [entry(51, "recv 0<-1", pair=True)],
        [entry(101, "recv 1<-2", pair=True)],
        [entry(103, "recv 2<-3", pair=True)],
        [entry(50, "recv 3<-2", done=True, pair=True)],
    )
    posted = dumps([entry(51, "send 0->1", pair=True)], [entry(101, "recv 1<-0", pair=True)])

    assert causes(found) == [("missing-collective", (3,))]
    assert causes(posted) == []


def test_different_operations_and_sizes_at_one_number():
    order = dumps([entry(4)], [entry(4)], [entry(4, "broadcast")])
    even = dumps([entry(4)], [entry(4, "broadcast")])
    shape = dumps([entry(4)], [entry(4, size=9)], [entry(4)])

    assert causes(order) == [("collective-order-mismatch", (2,))]
    assert causes(even) == [("collective-order-mismatch", (0, 1))]
    assert causes(shape) == [("collective-shape-mismatch", (1,))]


@pytest.mark.parametrize(
    "found",
    [
        dumps(done(1, 2), done(1, 2)),
        dumps([*done(1), entry(2)], [*done(1), entry(2)]),
        dumps([entry(4, "all_gather", size=3)], [entry(4, "all_gather", size=5)]),
        dumps(done(1, 2, 3), done(3)),  # finished ones may be left out
        dumps([], []),
    ],
)
def test_healthy_dumps_raise_nothing(found):
    assert causes(found) == []


def test_nothing_unfinished_is_said_and_not_called_healthy_where_dumps_are_missing():
    found = answer(dumps(done(1), done(1)), world_size=4)

    assert not found.examined
    assert [needs for _, needs, _ in found.not_examined] == ["the dumps of all ranks", "an unfinished operation"]


def test_a_dump_without_a_rank_and_a_second_one_are_left_out():
    one, two = dumps([entry(1)], [entry(1)])
    again = FlightDump(file="again_1", rank=1, version="", entries=(), groups=())
    nobody = FlightDump(file="dump", rank=None, version="", entries=(), groups=())

    assert answer([one, two, again, nobody]).unused == {
        "again_1": "is a second dump of rank 1; dump_1 is used",
        "dump": "neither its name nor its contents say of which rank it is",
    }


@pytest.mark.parametrize("case", ["case-a", "case-b"])
def test_the_ranks_that_a_fault_was_injected_into_are_named(data, case):
    found = [dump for path in sorted(data(f"flight_recorder/{case}").iterdir()) for dump in FlightRecorder().read(path)]

    (finding,) = answer(found).findings
    assert finding.ranks == (9, 14)
    assert "EXPERT_MODEL_PARALLEL_GROUP (group 72)" in finding.title
