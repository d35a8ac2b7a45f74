"""What every rank does, as lines."""

from rankscope.views.stacks import RankStack, render_stacks

WAIT = "/home/user/train.py:30:main"


def rank(number, state, *frames, **more):
    return RankStack(number, state, more.pop("since_ms", None), more.pop("last_call", ""), frames, **more)


def test_ranks_with_the_same_stack_stand_together_the_largest_group_first():
    ranks = [rank(0, "runs", "/home/user/train.py:50:save"), rank(1, "waits", WAIT), rank(2, "waits", WAIT)]

    assert render_stacks(ranks, 100).splitlines() == [
        "rank 1  waits",
        "rank 2  waits",
        "    main  /home/user/train.py:30",
        "",
        "rank 0  runs",
        "    save  /home/user/train.py:50",
    ]


def test_native_frames_stand_below():
    one = rank(4711, "waits", WAIT, who="process 4711", native=("c10d::Work::wait (libtorch_cpu.so)",))

    assert render_stacks([one], 100).splitlines() == [
        "process 4711  waits",
        "    main  /home/user/train.py:30",
        "    c10d::Work::wait (libtorch_cpu.so)",
    ]


def test_no_line_is_wider_than_asked_for_and_nothing_of_a_state_is_cut():
    one = rank(
        0, "is stopped by a signal (SIGSTOP) or a debugger", since_ms=10_000.0, last_call="allreduce number 45",
        why_no_stack="this user may not look into it (ptrace is forbidden)",
    )  # fmt: skip

    assert render_stacks([one], 60).splitlines() == [
        "rank 0  is stopped by a signal (SIGSTOP) or a debugger, no",
        "        progress for 10.0 s; last collective: allreduce",
        "        number 45",
        "    no stack could be taken: this user may not look into it",
        "    (ptrace is forbidden)",
    ]
