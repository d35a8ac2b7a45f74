"""Hangs and crashes on the fault bench: what is read from the terminal, how it is timed and what is asked of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).resolve().parents[2] / "faults"
NAMES = ("scoring", "stall", "running", "page", "results", "targets", "bench")
NO_PROGRESS = "rankscope: no progress for 6.0 s, after 44 steps"
UNEVEN = "rankscope: critical, uneven-inputs, rank 1, since step 44: rank 1 had no batches left [train.py:33 epoch]"


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(FAULTS))
    loaded = {name: importlib.import_module(name) for name in NAMES}
    yield loaded
    sys.path.remove(str(FAULTS))
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def stall(modules):
    return modules["stall"].Stall()


def expectation(modules, **changes):
    raw = {
        "id": "A-C01",
        "title": "t",
        "command": ["torchrun", "train.py"],
        "causes": ["uneven-inputs"],
        "ranks": [1],
        "all_ranks": False,
        "place": {"any_of": ["train_epoch"]},
        "world_size": 2,
        "repaired": "repaired.py",
        "root": {"file": "train.py", "line": 33, "function": "train_epoch"},
        "ends": {"how": "hang", "exit_code": None},
        "allowed_repaired": ["slow-start"],
    }
    return modules["scoring"].Expected.from_json({**raw, **changes})


def finding(**changes):
    made = {
        "cause": "uneven-inputs",
        "severity": "critical",
        "ranks": [1],
        "all_ranks": False,
        "location": {"file": "/x/train.py", "line": 33, "function": "train_epoch"},
    }
    return {**made, **changes}


def hang(modules, told=(), stalled_s=100.0, expected=None, **changes):
    """The result of an observed hang that was told as in `told`: lines of the terminal and when they came."""
    seen = modules["stall"].Stall()
    for line, at_s in told:
        seen.note(line, at_s)
    expected = expected or expectation(modules, **changes)
    case = modules["running"].Case("x", Path("x"), "train.py", expected)
    made = {"verdict": "failed", "findings": [finding()]}
    outcome = modules["running"].Outcome(1, 30.0, "", made, stalled_s=stalled_s, told=tuple(seen.told))
    scored = modules["results"].score_outcome(outcome, expected, None)
    return modules["results"].Result(case, score=scored, outcomes=[outcome])


def test_the_begin_of_a_stall_is_its_line_less_the_time_it_tells(stall):
    stall.note(NO_PROGRESS, now_s=100.0)

    assert stall.begin_s == 94.0


def test_later_lines_about_the_same_stall_never_move_its_begin_forward(stall):
    stall.note(NO_PROGRESS, now_s=100.0)
    stall.note("rankscope: no progress for 11.5 s, after 44 steps", now_s=107.0)
    assert stall.begin_s == 94.0

    stall.note("rankscope: no progress for 24.5 s, after 44 steps", now_s=118.0)
    assert stall.begin_s == 93.5


def test_another_stall_has_its_own_begin(stall):
    stall.note("rankscope: no progress for 6.00 s, after 0 steps", now_s=20.0)
    stall.note(NO_PROGRESS, now_s=100.0)

    assert stall.begin_s == 94.0


def test_a_run_goes_on_for_two_seconds_after_its_first_failure_was_told(modules, stall):
    stall.note(NO_PROGRESS, now_s=100.0)
    stall.note(UNEVEN, now_s=101.0)

    assert stall.told == [modules["stall"].Told("uneven-inputs", (1,), False, 101.0)]
    assert [stall.over(now) for now in (102.9, 103.0)] == [False, True]


def test_a_stall_of_which_no_failure_is_told_is_given_up_after_a_minute(stall):
    assert not stall.over(1e6)

    stall.note(NO_PROGRESS, now_s=100.0)

    assert [stall.over(now) for now in (153.9, 154.0)] == [False, True]


@pytest.mark.parametrize(
    "line",
    [
        "rankscope: warning, slow-code, rank 0: a function takes the time",
        "rankscope: critical, checkpoint-stall, all ranks, since step 3: the run stands still",
        "  rank 1 waits in barrier number 9 of all ranks since 6.0 s",
        "epoch 0 loss 2.3046",
        "",
    ],
)
def test_what_is_no_failure_ends_nothing(stall, line):
    stall.note(line, now_s=1.0)

    assert stall.told == []


@pytest.mark.parametrize(
    "head, told",
    [
        ("critical, dead-rank, rank 2", ("dead-rank", (2,), False)),
        ("warning, missing-collective, ranks 0-2, 7, since step 4", ("missing-collective", (0, 1, 2, 7), False)),
        ("critical, collective-order-mismatch, all ranks, since step 4", ("collective-order-mismatch", (), True)),
        ("critical, rendezvous-failure", ("rendezvous-failure", (), False)),
    ],
)
def test_cause_and_ranks_are_read_from_the_line_of_a_failure(modules, stall, head, told):
    stall.note(f"step 3 loss 0.1rankscope: {head}: ranks 5 and 6, critical", now_s=1.0)

    assert stall.told == [modules["stall"].Told(*told, at_s=1.0)]


@pytest.mark.parametrize(
    "text, seconds",
    [("5.94 s", 5.94), ("740 ms", 0.74), ("4 min 05 s", 245.0), ("2 h 10 min", 7800.0)],
)
def test_times_are_read_as_they_are_written(modules, text, seconds):
    assert modules["stall"].seconds(text) == pytest.approx(seconds)


def test_a_time_that_cannot_be_read_is_named(modules):
    with pytest.raises(ValueError, match=r"'soon' is no time: write it as `5.94 s`"):
        modules["stall"].seconds("soon")


def test_told_after_counts_to_the_first_line_that_is_right(modules):
    wrong = UNEVEN.replace("rank 1,", "rank 0,")
    result = hang(modules, told=[(wrong, 107.0), (UNEVEN, 109.5), (UNEVEN, 120.0)])

    assert result.told_after_s == 9.5
    assert (result.row().told_after, result.row().line) == ("9.5 s", "yes")


def test_a_hang_without_a_right_line_was_never_told(modules):
    result = hang(modules, told=[(UNEVEN.replace("uneven-inputs", "stuck-rank"), 107.0)])

    assert (result.told_after_s, result.row().told_after) == (float("inf"), "never")


def test_a_program_that_ends_by_itself_has_no_time(modules):
    result = hang(modules, ends={"how": "exit", "exit_code": 1})

    assert (result.told_after_s, result.row().told_after) == (None, "")


@pytest.mark.parametrize(
    "location, right",
    [
        ({"file": "/x/train.py", "line": 33, "function": "Trainer.train_epoch"}, True),
        ({"file": "train.py", "line": 34, "function": "train_epoch"}, False),
        ({"file": "/x/other_train.py", "line": 33, "function": "train_epoch"}, False),
        ({"file": "train.py", "line": 33, "function": "main"}, False),
        (None, False),
    ],
)
def test_the_line_of_the_root_is_compared_exactly_and_decides_nothing(modules, location, right):
    report = {"verdict": "failed", "findings": [finding(location=location, component="train_epoch")]}

    scored = modules["scoring"].score(report, expectation(modules))

    assert (scored.line_right, scored.exact) == (right, True)


def test_a_case_without_a_root_says_nothing_about_its_line(modules):
    report = {"verdict": "failed", "findings": [finding()]}

    assert modules["scoring"].score(report, expectation(modules, root=None)).line_right is None


@pytest.mark.parametrize(
    "causes, verdict, problems",
    [
        (["checkpoint-stall"], "degraded", ()),
        ([], "healthy", ()),
        (["checkpoint-stall", "stuck-rank"], "degraded", ("critical stuck-rank",)),
        (["checkpoint-stall"], "failed", ("verdict failed",)),
        ([], "degraded", ("verdict degraded",)),
    ],
)
def test_what_is_true_of_a_control_is_no_false_alarm(modules, causes, verdict, problems):
    control = expectation(modules, id="N-C1", causes=[], ends=None, root=None, allowed=["checkpoint-stall"])
    report = {"verdict": verdict, "findings": [finding(cause=cause) for cause in causes]}

    scored = modules["scoring"].score(report, control)

    assert (scored.problems, scored.false_alarm) == (problems, bool(problems))


def test_a_repaired_twin_ends_by_itself_and_keeps_what_is_true_of_it(modules):
    case = modules["running"].Case("c01", Path("x"), "train.py", expectation(modules))

    twin = modules["bench"].repaired_twin(case)

    expected = twin.expected
    assert (twin.script, expected.healthy, expected.hangs, expected.root) == ("repaired.py", True, False, None)
    assert expected.allowed == ("slow-start",)


def test_a_broken_end_is_named(modules):
    with pytest.raises(ValueError, match=r"A-C01: ends\.how is 'crash', write 'exit' or 'hang'"):
        expectation(modules, ends={"how": "crash"})


def test_exit_codes_are_those_of_the_case_and_a_hang_has_none(modules):
    case = modules["running"].Case("x", Path("x"), "train.py", expectation(modules))
    dies = modules["running"].Case("x", Path("x"), "x", expectation(modules, ends={"how": "exit", "exit_code": 1}))

    assert [modules["bench"].wanted_exit_code(one, skip_bare=True) for one in (case, dies)] == [None, 1]


def test_any_exit_code_of_a_hang_will_do(modules):
    result = hang(modules, told=[(UNEVEN, 108.0)])

    assert result.score.exact
    assert modules["targets"].missed_targets([result]) == []


def test_late_and_missing_lines_miss_the_target(modules):
    results = [hang(modules, told=[(UNEVEN, 112.0)], id=f"A-C{n:02d}") for n in range(1, 3)]
    results += [hang(modules, told=[(UNEVEN, 116.0)], id="A-C03"), hang(modules, id="A-C04")]

    assert modules["targets"].missed_targets(results) == [
        "A-C03 told 16.0 s after its stall, 15 s at most",
        "A-C04 told never, 15 s at most",
        "0 of 4 hangs told within 10 s, 4 needed",
    ]


def test_fourteen_of_fifteen_are_needed_and_variants_do_not_count(modules):
    right = [hang(modules, told=[(UNEVEN, 108.0)], id=f"A-C{n:02d}") for n in range(1, 15)]
    wrong = [hang(modules, told=[(UNEVEN, 108.0)], id=f"A-C{n}", place={"any_of": ["^no$"]}) for n in (14, 15)]
    variant = hang(modules, told=[(UNEVEN, 108.0)], id="A-C09s")

    assert modules["targets"].missed_targets([*right, wrong[1], variant]) == []
    assert modules["targets"].missed_targets([*right[:13], *wrong, variant]) == [
        "13 of 15 hangs and crashes exact (0 skipped), 14 needed"
    ]
    assert modules["targets"].summary([*right[:13], *wrong, variant]) == (
        "13 of 15 hangs and crashes exact, 15 detected, 0 skipped; 16 of 16 hangs told within 10 s; "
        "0 false alarms on 0 healthy programs."
    )


def test_each_family_gets_its_own_tables(modules):
    control = expectation(modules, id="A-N01", causes=[], ends=None, root=None)
    results = [hang(modules, told=[(UNEVEN, 108.0)]), hang(modules, expected=control)]

    bodies = modules["bench"].page_bodies(results)

    assert list(bodies) == ["p", "c"]
    assert ["A-C01" in body for body in bodies.values()] == [False, True]


@pytest.mark.parametrize("family, keys", [("p", "pnf"), ("c", "cn"), ("d", "dn"), ("e", "e")])
def test_a_family_is_chosen_with_its_controls(modules, family, keys):
    chosen = modules["bench"].select(modules["running"].load_cases(), None, short=False, family=family)

    assert {case.key[0] for case in chosen} == set(keys)
    assert {case.expected.family for case in chosen} == {family}


def test_lines_are_handed_on_while_the_program_runs_and_it_is_asked_to_end(modules, tmp_path):
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        f"print({NO_PROGRESS!r}, flush=True)\n"
        f"print({UNEVEN!r}, flush=True)\n"
        "time.sleep(60)\n"
    )
    stall = modules["stall"].Stall()

    outcome = modules["running"].run([sys.executable, "-c", program], tmp_path, stall=stall)

    assert outcome.exit_code == 7
    assert [told.cause for told in stall.told] == ["uneven-inputs"]
    assert stall.told[0].at_s - stall.begin_s == pytest.approx(6.0, abs=0.5)
    assert outcome.output.splitlines() == [NO_PROGRESS, UNEVEN]


def test_a_program_that_is_never_told_of_ends_on_time_out(modules, tmp_path):
    program = [sys.executable, "-c", "import time; time.sleep(60)"]

    outcome = modules["running"].run(program, tmp_path, time_out_s=0.3, stall=modules["stall"].Stall())

    assert outcome.exit_code is None
    assert outcome.seconds < 30.0
