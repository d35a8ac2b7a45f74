"""Whether time stamps of ranks may be compared."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.clock_check import CheckedClock, check_clock
from rankscope.analysis.facts import Facts
from rankscope.records.collective import CommunicationWait
from rankscope.records.host import GcPause
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


def test_a_wait_that_a_pause_cuts_in_two_is_left_at_its_end():
    run = replace(BASE, forward_ms={1: 25.0}, parts=(Reduce(transfer_ms=0.5),)).build()
    waits = run.rows[(run.rows["kind"] == CommunicationWait.code) & (run.rows["process"] == 1000)]
    pause = waits[-1:].copy()
    pause["kind"], pause["time_ns"], pause["duration_ns"] = GcPause.code, pause["time_ns"] + 1000, 1000

    facts = Facts(replace(run, rows=np.concatenate([run.rows, pause])).tables)

    assert check_clock(facts).max_error_us == 0


def test_a_device_s_collectives_prove_nothing_but_its_barriers_do():
    run = replace(BASE, parts=(Reduce(transfer_ms=0.5), Reduce(operation="barrier", transfer_ms=0.5))).build()
    processes = {pid: replace(p, backend="cpu:gloo,cuda:nccl") for pid, p in run.tables.processes.items()}

    facts = Facts(replace(run.tables, processes=processes))

    assert check_clock(facts).method == "one monotonic clock of the node, checked on 200 waits"


def test_several_nodes_are_not_tied_together_without_waits():
    facts = replace(BASE, hosts=lambda rank: f"node{rank}").build().facts

    assert check_clock(facts) == CheckedClock("2 nodes, not tied together", None)


@pytest.mark.parametrize("ahead_us", [0, 2000])
def test_of_several_nodes_the_waits_prove_how_far_their_clocks_are_apart(ahead_us):
    run = replace(BASE, noise=0.05, hosts=lambda rank: f"node{rank}", parts=(Reduce(transfer_ms=0.5),)).build()
    rows = run.rows.copy()
    rows["time_ns"][rows["process"] == 1001] += ahead_us * 1000

    checked = check_clock(Facts(replace(run, rows=rows).tables))

    assert re.fullmatch(
        r"the clocks of 2 nodes as they are, compared on 200 waits, which tell their difference to within [45]\d\d µs",
        checked.method,
    )
    # Who comes last changes from step to step, and everybody leaves 0.5 ms after that.
    assert ahead_us + 400 <= checked.max_error_us <= ahead_us + 700
