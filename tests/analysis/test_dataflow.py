"""Whether a line of the loop makes the batch."""

import pytest

from rankscope.analysis.dataflow import feeds_forward, writes_lines

LOOP = """\
def main(model, data):
    for step in range(10):
        x = make(step)
        y: int = label(step)
        note(step)
        z = make(
            step,
        )
        unused = make(step)
        loss = model(x, target=y, extra=[z])
        loss.backward()
"""


@pytest.mark.parametrize("line, answer", [(3, True), (4, True), (5, False), (6, True), (7, True), (9, False)])
def test_says_whether_what_a_line_assigns_is_given_to_a_later_call(tmp_path, line, answer):
    file = tmp_path / "train.py"
    file.write_text(LOOP)

    assert feeds_forward(str(file), line) is answer


def test_what_is_only_printed_makes_no_batch(tmp_path):
    file = tmp_path / "train.py"
    lines = ("def main(model):", "    share = rare()", "    loss = model(1)", "    loss.backward()", "    print(share)")
    file.write_text("\n".join(lines))

    assert [feeds_forward(str(file), 2), feeds_forward(str(file), 2, frozenset({3, 4}))] == [False, False]


def test_what_is_computed_into_the_loss_makes_the_batch(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(LOOP)

    assert [feeds_forward(str(file), line, frozenset({11})) for line in (3, 6, 9)] == [True, True, False]


def test_the_target_of_a_loop_counts(tmp_path):
    file = tmp_path / "loop.py"
    file.write_text("def main(model, batches):\n    for x, y in batches:\n        model(x)\n")

    assert feeds_forward(str(file), 2) is True


def test_says_no_where_the_source_cannot_be_read(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def main(:\n")

    assert [feeds_forward(str(tmp_path / "gone.py"), 3), feeds_forward(str(broken), 1)] == [False, False]


def test_lines_that_write_to_a_file_are_known(tmp_path):
    file = tmp_path / "train.py"
    lines = ("f.write(x)", "f.flush()", "os.fsync(f.fileno())", "print(x, file=f)", "print(x)", "r = f.read()", "a = b")
    file.write_text("\n".join(lines))

    assert [writes_lines(str(file), number) for number in range(1, 8)] == [True] * 4 + [False] * 3
    assert not writes_lines(str(tmp_path / "gone.py"), 1)
