import dataclasses

import pytest

from rankscope.base.finding import Cost
from rankscope.report.report import Clock, Exit, InputFile, Lost, NotExamined, Overhead, Report, Run
from rankscope.views.sentences import (
    advice_when_not_examined,
    clock_text,
    cost_text,
    exits_text,
    headline,
    lost_text,
    overhead_text,
    ranks_text,
    run_text,
    steps_text,
    why_not_examined,
)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((1,), "rank 1"),
        ((3, 2), "ranks 2-3"),
        ((0, 1, 2, 5, 7), "ranks 0-2, 5, 7"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10 and 14 more"),
    ],
)
def test_ranks_are_named_shortly(ranks, text):
    assert ranks_text(ranks) == text


def test_all_ranks_are_not_counted_up():
    assert ranks_text((0, 1), all_ranks=True) == "all ranks"


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (None, None, ""),
        (12, None, "since step 12"),
        (12, 12, "at step 12"),
        (12, 99, "since step 12, last seen at step 99"),
        (None, 3, "until step 3"),
    ],
)
def test_steps_say_since_when(first, last, text):
    assert steps_text(first, last) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(None, None, None), ""),
        (Cost(58.2, 0.312, 0.29), "58.2 ms (31 %) of every step; fixing it would make the run 1.4x faster"),
        (Cost(None, 0.31, None), "31 % of the time"),
        (Cost(58.2, None, 0.001), "58.2 ms of every step; fixing it would gain less than 0.5 %"),
        (Cost(None, None, 0.03), "fixing it would make the run 3.1 % faster"),
        (Cost(None, None, 0.95), "fixing it would make the run 20x faster"),
        (Cost(1.0, 1.0, 1.0), "1.00 ms (100 %) of every step"),
    ],
)
def test_a_cost_says_what_is_known_and_nothing_else(cost, text):
    assert cost_text(cost) == text


def test_exits_that_went_well_are_not_told():
    exits = (Exit(0, 0), Exit(1, None, "SIGKILL"), Exit(2, 1), Exit(3, None))

    assert exits_text(exits) == "rank 1: SIGKILL, rank 2: exit code 1"


def test_many_bad_exits_are_counted():
    assert exits_text([Exit(rank, 1) for rank in range(9)]).endswith("rank 5: exit code 1 and 3 more")


def test_a_run_of_which_little_is_known_is_its_id():
    assert run_text(Run("20260301")) == "20260301"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (clock_text(Clock()), "clock: ranks were not put on one clock"),
        (clock_text(Clock("pings")), "clock: pings, error not bounded"),
        (clock_text(Clock("pings", 41)), "clock: pings, error up to 41.0 µs"),
        (clock_text(Clock("one rank", 0)), "clock: one rank, no error"),
        (overhead_text(Overhead()), "overhead: not measured"),
        (overhead_text(Overhead(None, 0.01, "too few")), "overhead: not measured (too few)"),
        (overhead_text(Overhead(0.006, 0.01)), "overhead: 0.6 %, within the budget of 1.0 %"),
        (lost_text(Lost()), "lost: not counted"),
        (lost_text(Lost(0)), "lost: no records"),
        (lost_text(Lost(1, "torn")), "lost: 1 record (torn)"),
    ],
)
def test_what_was_not_measured_is_said_and_not_0(text, words):
    assert text == words


def test_information_alone_is_no_problem(made_up):
    note = made_up.SLOW_LOADING.findings[2]
    report = dataclasses.replace(made_up.HEALTHY, findings=(note,))

    assert headline(report) == "nothing wrong found in 480 steps on 4 ranks"


def test_a_failure_without_a_cause_says_how_it_ended():
    report = Report(Run("r", exits=(Exit(1, 3),)), "failed")

    assert headline(report) == "the run failed; rank 1: exit code 3"


def test_why_and_what_to_do_follow_from_what_is_missing():
    unread = Report(Run("r"), "not-examined", files=(InputFile("a", "", False, "no"),))
    short = Report(Run("r"), "not-examined", not_examined=(NotExamined("slow-link", "steps", "none"),))

    assert why_not_examined(unread) == "none of 1 file could be used"
    assert why_not_examined(short) == "no finished step was recorded"
    assert advice_when_not_examined(short) == (
        "let the run make more steps, at least 10, under `rankscope run -- COMMAND`",
    )
