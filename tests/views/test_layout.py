import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rankscope.views.layout import clean, pad, print_lines, shorten_middle, table, wrap


def test_a_long_path_keeps_its_start_and_more_of_its_end():
    assert shorten_middle("/home/ana/projects/imagenet/loaders/jpeg.py", 24) == "/home/a…/loaders/jpeg.py"


def test_a_path_that_is_too_long_for_a_line_is_shortened_and_a_word_is_broken():
    assert wrap("see /a/very/long/path/to/a/file.py now", 20) == ["see", "/a/ver…/to/a/file.py", "now"]
    assert wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_control_characters_do_not_reach_the_terminal():
    assert clean("a\x1b[31m\nb\tc\x07\u202e") == "a�[31m b c��"


def test_wide_characters_count_as_two_columns():
    assert pad("数据", 6) == "数据  "
    assert cell_len(shorten_middle("数据数据数据", 7)) <= 7


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80), st.integers(20, 60))
def test_no_wrapped_line_is_wider_than_asked(text, width):
    assert max(map(cell_len, wrap(text, width))) <= width


def test_the_named_column_gives_way_when_a_table_is_too_wide():
    lines = table([["id", "name"], ["1", "a-rather-long-name"]], right=set(), width=14, shrink=(1,))

    assert [line.plain for line in lines] == ["id  name", "1   a-r…g-name"]


def test_a_terminal_without_utf8_gets_characters_that_it_can_show():
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, "ascii", write_through=True), width=40)

    print_lines([Text("5 µs ─ 数 █▌")], console)

    assert raw.getvalue() == b"5 us - ? ##\n"
