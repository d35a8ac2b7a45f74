"""The same collective on all its ranks."""

from dataclasses import replace

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.collective import Collective
from rankscope.testing.known_runs import BASE
from rankscope.testing.parts import Exchange, Reduce


def of_group(facts, position, group):
    """(last rank, members) of each collective of a group on one rank."""
    rows = facts.timelines[position].collectives
    pid = facts.ranks[position].pid
    names = [facts.tables.name(pid, g) for g in column(rows, Collective, "group").tolist()]
    mine = [i for i, name in enumerate(names) if name == group]
    found = facts.matches
    return {(int(found.last_rank[position][i]), int(found.members[found.ids[position][i]])) for i in mine}


def test_all_ranks_of_a_group_meet_and_the_last_one_is_known():
    facts = replace(BASE, ranks=3, forward_ms={2: 30.0}).build().facts

    assert {members for p in range(3) for _, members in of_group(facts, p, "group:default")} == {3}
    backward = column(facts.timelines[0].collectives, Collective, "in_backward") == 1
    assert set(facts.matches.last_rank[0][backward].tolist()) == {2}


def test_collectives_of_equal_numbers_in_different_groups_are_different():
    parts = (
        Reduce(ranks=(0, 1), members=(0, 1), group="group:left"),
        Reduce(ranks=(2, 3), members=(2, 3), group="group:right"),
    )
    facts = replace(BASE, ranks=4, forward_ms={1: 20.0, 2: 20.0}, parts=parts).build().facts

    # All leave the gradient reduction together; of equal entries the later rank counts.
    assert {members for _, members in of_group(facts, 0, "group:left")} == {2}
    assert {last for last, _ in of_group(facts, 0, "group:left")} <= {0, 1}
    assert {last for last, _ in of_group(facts, 2, "group:right")} <= {2, 3}


def test_a_send_meets_its_receive_and_not_the_other_direction():
    parts = (Exchange(source=0, target=1), Exchange(source=1, target=0))
    facts = replace(BASE, parts=parts).build().facts

    there, back = (of_group(facts, 0, f"group:default:{pair}") for pair in ("0>1", "1>0"))

    assert {members for _, members in there | back} == {2}
    ids = facts.matches.ids
    assert np.array_equal(np.sort(ids[0]), np.sort(ids[1]))


def test_a_collective_that_only_one_rank_was_seen_in_has_no_last_rank():
    run = BASE.build()
    only_rank_0 = run.rows[(run.rows["process"] != 1001) | (run.rows["kind"] != 30)]
    facts = Facts(replace(run, rows=only_rank_0).tables)

    assert set(facts.matches.last_rank[0].tolist()) == {-1}
    assert facts.span_ns == run.span_ns(facts.warm_up)


def test_the_last_entry_is_that_of_the_rank_that_comes_last():
    facts = replace(BASE, forward_ms={1: 40.0}).build().facts
    calls = facts.timelines[0].collectives
    backward = column(calls, Collective, "in_backward") == 1

    late = (facts.matches.last_enter[0] - calls["time_ns"].astype(np.int64))[backward]

    assert set(late.tolist()) == {25_000_000}
