"""Places and stacks."""

from dataclasses import replace

import pytest

from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, Stack, activity, hottest, innermost_user, parse_place, spine
from rankscope.testing import places
from rankscope.testing.known_runs import BASE

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


def test_the_user_s_frames_are_told_by_where_the_process_has_its_libraries():
    built = Place("/home/u/pytorch/torch/_tensor.py", 630, "Tensor.backward")
    project = Place("/home/u/torch/train.py", 50, "main")
    stack = Stack((project, built), ("/home/u/pytorch/torch",), "/home/u/pytorch/torch")

    assert (stack.user, stack.ends_in_torch) == ((project,), True)
    assert not Stack((BACKWARD, project)).ends_in_torch


def test_samples_know_where_their_process_has_torch():
    torch = places.TORCH.replace("/home/user/venv/lib/python3.11/site-packages", "/src/pytorch")
    run = replace(BASE, ranks=1, files={places.TORCH: torch}).build()
    own = replace(run.tables.processes[1000], torch_folder=torch)
    facts = Facts(replace(run.tables, processes={**run.tables.processes, 1000: own}))

    in_torch = {f.file for s in facts.samples(0).stack if s.ends_in_torch for f in s.frames[-1:]}

    assert in_torch
    assert all(file.startswith("/src/pytorch/torch/") for file in in_torch)
    assert not any(f.file.startswith(torch) for s in facts.samples(0).stack for f in s.user)


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
