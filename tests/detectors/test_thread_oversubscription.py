"""More compute threads than cores."""

from dataclasses import replace

import pytest

from rankscope.analysis.detector import CannotExamine
from rankscope.analysis.detectors.thread_oversubscription import ThreadOversubscription
from rankscope.testing.checks import Named, found_by
from rankscope.testing.host import Host
from rankscope.testing.known_runs import BASE, known_run


def test_names_the_threads_of_all_ranks():
    found = found_by(ThreadOversubscription, known_run("more threads than cores"))

    threads = "8 intra-op threads a process (OMP_NUM_THREADS)"
    assert [f._replace(share=None) for f in found] == [
        Named("thread-oversubscription", "warning", (0, 1), True, None, threads, None, None)
    ]


def test_promises_no_gain():
    """What threads waste by spinning and switching looks like work: of two programs one gained half of an estimate."""
    (found,) = ThreadOversubscription().examine(known_run("more threads than cores").facts)

    assert found.cost.recoverable_share is None
    assert found.cost.share == pytest.approx(0.375, abs=0.01)


def test_is_silent_where_one_neighbour_takes_the_cores():
    assert found_by(ThreadOversubscription, known_run("a neighbour on rank 1's cores")) == []


def test_is_silent_on_healthy_ranks():
    assert found_by(ThreadOversubscription, known_run("two ranks")) == []


def test_is_silent_where_many_threads_are_set_but_idle():
    run = replace(BASE, torch_threads=8).build()  # the default of torch on 8 cores; nobody waits

    assert found_by(ThreadOversubscription, run) == []


def test_cannot_examine_without_readings_in_the_window():
    run = replace(BASE, torch_threads=8, steps=12, host=Host()).build()  # half a second: one reading

    with pytest.raises(CannotExamine, match="run-queue times were not read"):
        found_by(ThreadOversubscription, run)
