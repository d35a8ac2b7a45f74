"""Observation changes no bit of a healthy control; all of them: `python faults/exact.py`."""

import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parents[2] / "faults"


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.syspath_prepend(str(FAULTS))
    import exact

    yield exact
    for name in ("exact", "running", "scoring", "stall"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_a_control_prints_and_learns_the_same(exact):
    (control,) = [case for case in exact.load_cases().values() if case.key == "n01"]

    said, much = exact.compare(control)

    assert said == "equal", much
    assert "of 2 ranks" in much


def test_different_weights_are_noticed(exact, monkeypatch):
    runs = iter([exact.Seen(("loss 1",), {".0": ("aa",)}), exact.Seen(("loss 1",), {".0": ("ab",)})])
    monkeypatch.setattr(exact, "watch", lambda case, *, observed: next(runs))

    assert exact.compare(None)[0] == "weights differ"


def test_to_have_compared_nothing_is_not_equal(exact, monkeypatch):
    monkeypatch.setattr(exact, "watch", lambda case, *, observed: exact.Seen((), {}))

    assert exact.compare(None)[0] == "nothing to compare"


def test_an_unknown_control_ends_with_2(exact, capsys):
    assert exact.main(["--only", "n99"]) == 2
    assert capsys.readouterr().err == "exact: no such control\n"
