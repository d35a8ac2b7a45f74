"""How two lines of a program lie to each other."""

import pytest

from rankscope.analysis.source_order import left_loop_by_choice, same_loop
from rankscope.analysis.stacks import Place

PROGRAM = """\
def train(loader, model):
    for epoch in range(3):
        for x in loader:
            model(x).backward()
        barrier()
    done()


def stop_early(loader, model):
    for x in loader:
        loss = model(x)
        loss.backward()
        if loss < 1:
            break
    barrier()


def track(values):
    for name, value in values:
        if name == "loss":
            all_reduce(value)
        else:
            broadcast(value)


def until(model):
    while model.improves():
        model.step()
    barrier()
"""


@pytest.fixture
def place(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    names = {range(1, 7): "train", range(9, 16): "stop_early", range(18, 24): "track", range(26, 30): "until"}
    return lambda line: Place(str(file), line, next(name for lines, name in names.items() if line in lines))


@pytest.mark.parametrize(
    "inside, behind, answer",
    [
        (4, 5, False),  # the batches are over
        (4, 6, False),
        (5, 4, None),  # in front of it, not behind
        (12, 15, True),  # break
        (28, 29, True),  # a condition
        (21, 23, None),  # both in the loop
        (4, 15, None),  # another function
    ],
)
def test_says_whether_a_loop_was_left_by_choice(place, inside, behind, answer):
    assert left_loop_by_choice(place(inside), place(behind)) is answer


@pytest.mark.parametrize("a, b, answer", [(21, 23, True), (4, 5, False), (12, 15, False), (5, 6, False)])
def test_says_whether_two_lines_share_their_innermost_loop(place, a, b, answer):
    assert same_loop(place(a), place(b)) is answer


def test_nothing_is_said_without_the_source(tmp_path):
    gone = Place(str(tmp_path / "gone.py"), 4, "train")

    assert (left_loop_by_choice(gone, gone), left_loop_by_choice(None, gone), same_loop(None, gone)) == (
        None,
        None,
        False,
    )
