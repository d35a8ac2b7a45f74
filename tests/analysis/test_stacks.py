"""Places and stacks."""

import sys

import pytest

from rankscope.analysis.stacks import Place, Stack, activity, hottest, innermost_user, is_user, parse_place, spine

MAIN, EPOCH = Place("/home/u/train.py", 50, "main"), Place("/home/u/train.py", 40, "epoch")
BACKWARD = Place("/home/u/venv/lib/python3.11/site-packages/torch/_tensor.py", 630, "Tensor.backward")
HOOK = Place("/home/u/train.py", 12, "hook")


@pytest.mark.parametrize(
    "text, place",
    [
        ("/a/b.py:41:f", Place("/a/b.py", 41, "f")),
        ("/a/b.py:41:A.f.<locals>.g", Place("/a/b.py", 41, "A.f.<locals>.g")),
        ("C:/a.py:3:f", Place("C:/a.py", 3, "f")),
        ("unknown", Place("", 0, "unknown")),
    ],
)
def test_a_place_is_read_from_its_text(text, place):
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "file, answer",
    [
        ("/home/u/train.py", True),
        ("/home/u/venv/lib/python3.11/site-packages/torch/_tensor.py", False),
        (f"/usr/lib/python3.{sys.version_info.minor}/threading.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
        ("", False),
        ("/opt/x/rankscope/capture/ring.py", False),
    ],
)
def test_only_files_of_the_user_are_the_user_s(file, answer):
    assert is_user(file) is answer


def test_the_spine_ends_where_a_library_is_called():
    assert spine([Stack((MAIN, EPOCH, BACKWARD, HOOK))]) == {MAIN.code, EPOCH.code}


def test_the_spine_goes_on_through_launchers_and_decorators():
    runpy = Place("/usr/lib/python3.11/runpy.py", 88, "_run_code")
    context = Place("/home/u/venv/lib/python3.11/site-packages/torch/utils/_contextlib.py", 120, "decorate_context")

    assert spine([Stack((runpy, MAIN, context, EPOCH, BACKWARD))]) == {MAIN.code, EPOCH.code}


def test_an_activity_is_the_first_user_function_outside_of_the_loop():
    loop = {MAIN.code, EPOCH.code}

    assert activity(Stack((MAIN, EPOCH, BACKWARD, HOOK)), loop) == HOOK
    assert activity(Stack((MAIN, EPOCH, BACKWARD)), loop) == EPOCH
    assert activity(Stack((BACKWARD,)), loop) is None


def test_the_innermost_user_line_is_the_deepest():
    assert innermost_user(Stack((MAIN, BACKWARD, HOOK, BACKWARD))) == HOOK
    assert innermost_user(Stack((BACKWARD,))) is None


def test_the_hottest_function_is_shown_at_its_heaviest_line():
    low, high = Place("/a.py", 3, "f"), Place("/a.py", 4, "f")

    assert hottest([(low, 1), (high, 2), (MAIN, 2)]) == (high, 0.6)
    assert hottest([]) is None
