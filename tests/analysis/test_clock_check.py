"""Whether time stamps of ranks may be compared."""

from dataclasses import replace

from rankscope.analysis.clock_check import CheckedClock, check_clock
from rankscope.analysis.facts import Facts
from rankscope.testing.known_runs import BASE, known_run
from rankscope.testing.parts import Reduce


def test_one_node_has_one_clock_and_its_waits_prove_it():
    facts = replace(BASE, parts=(Reduce(transfer_ms=0.5),)).build().facts

    assert check_clock(facts) == CheckedClock("one monotonic clock of the node, checked on 200 waits", 0)


def test_without_waits_nothing_is_checked():
    assert check_clock(known_run("one process").facts) == CheckedClock("one monotonic clock of the node", 0)


def test_leaving_before_the_last_has_entered_is_the_error():
    run = replace(BASE, parts=(Reduce(transfer_ms=0.5),)).build()
    rows = run.rows.copy()
    rows["time_ns"][rows["process"] == 1001] += 2_000_000  # its clock is 2 ms fast

    # It seems to enter 2 ms late, and the other to leave 0.5 ms after the true last entry.
    assert check_clock(Facts(replace(run, rows=rows).tables)).max_error_us == 1500


def test_several_nodes_are_not_tied_together():
    facts = replace(BASE, hosts=lambda rank: f"node{rank}").build().facts

    assert check_clock(facts) == CheckedClock("several nodes, not tied together", None)
