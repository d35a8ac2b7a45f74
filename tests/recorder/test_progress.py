"""When a rank without progress is looked at."""

import numpy as np
import pytest

from rankscope.recorder.progress import AGAIN, LOOK_NS, Progress
from rankscope.records.host import StackSample
from rankscope.records.rows import SLOT_DTYPE
from rankscope.records.training import Forward, Step

S = 1_000_000_000


def slots(*records):
    rows = np.zeros(len(records), SLOT_DTYPE)
    for row, (kind, begin, duration) in zip(rows, records, strict=True):
        row["kind"], row["time_ns"], row["duration_ns"] = kind.code, begin, duration
    return rows


def trained(step_ns, steps=20):
    progress = Progress()
    progress.note(7, slots(*((Step, i * step_ns, step_ns) for i in range(steps))))
    return progress, steps * step_ns


def test_a_rank_that_writes_is_left_alone():
    progress, now = trained(S // 10)

    assert not progress.due(now + LOOK_NS // 2, [7])


def test_a_rank_that_writes_nothing_is_looked_at_once_and_again_when_the_stall_is_twice_as_old():
    progress, now = trained(S // 10)
    asked = [progress.due(now + age * S, [7]) for age in (5, 6, 7, 11, 12, 13, 23, 24)]

    assert AGAIN == 2
    assert asked == [False, True, False, False, True, False, False, True]


def test_long_steps_make_it_patient():
    progress, now = trained(3 * S)

    assert [progress.due(now + age * S, [7]) for age in (20, 29, 31)] == [False, False, True]


@pytest.mark.parametrize("kind, due", [(StackSample, True), (Forward, False)])
def test_stack_samples_are_no_progress(kind, due):
    progress, now = trained(S // 10)
    progress.note(7, slots((kind, now + 5 * S, 0)))

    assert progress.due(now + 6 * S, [7]) is due


def test_a_pause_that_ended_by_itself_makes_it_patient():
    """An evaluation of 8 s each minute: a look at each of them would cost more than all else."""
    progress, now = trained(S // 10)
    assert [progress.due(now + age * S, [7]) for age in (6, 8)] == [True, False]
    progress.note(7, slots((Step, now + 8 * S, S // 10)))
    now += 8 * S + S // 10

    assert [progress.due(now + age * S, [7]) for age in (1, 6, 8, 9)] == [False, False, False, True]


def test_what_a_run_takes_before_its_first_step_says_nothing_of_its_pauses():
    progress = Progress()
    progress.note(7, slots((Forward, 0, S)))
    assert progress.due(20 * S, [7])
    progress.note(7, slots(*((Step, 21 * S + i * S // 10, S // 10) for i in range(20))))
    progress.due(23 * S, [7])

    assert progress.due(29 * S, [7])


def test_who_has_ended_or_never_trained_is_not_asked_for():
    progress, now = trained(S // 10)

    assert not progress.due(now + 60 * S, [])
    assert not progress.due(now + 60 * S, [8])


def test_time_in_which_nobody_looked_is_not_the_ranks():
    progress, now = trained(S // 10)
    progress.tick(now + 2 * S)
    progress.tick(now + 602 * S)

    asked = [progress.due(now + (602 + age) * S, [7]) for age in (0, 3, 4)]

    assert asked == [False, False, True]


def test_a_stall_is_as_old_as_it_is_where_the_recorder_came_by_all_the_time():
    progress, now = trained(S // 10)
    for second in range(7):
        progress.tick(now + second * S)

    assert progress.due(now + 6 * S, [7])
