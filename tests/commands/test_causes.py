import pytest

from rankscope.base.causes import CAUSES


def test_lists_every_cause_once(rankscope):
    code, out, error = rankscope("causes")

    assert (code, error) == (0, "")
    firsts = [line.split()[0] for line in out.splitlines() if line[:3].strip() and line.startswith("  ")]
    assert firsts == list(CAUSES)
    assert max(map(len, out.splitlines())) <= 100


def test_the_page_of_a_cause_is_its_detectors_docstring(rankscope):
    code, out, _ = rankscope("causes", "gc-pause")

    assert code == 0
    assert out.startswith("gc-pause  (performance)\n\n")
    assert "## What to do" in out
    assert max(map(len, out.splitlines())) <= 100


def test_says_what_nothing_looks_for_yet(rankscope):
    entries: dict[str, str] = {}
    for line in rankscope("causes")[1].splitlines():
        if line[:3].strip() and line.startswith("  "):
            code = line.split()[0]
            entries[code] = line
        elif line.startswith("   "):
            entries[code] += line

    for code in ("gc-pause", "retained-graph", "slow-link"):
        looked_for = "No detector of this version" not in rankscope("causes", code)[1]
        assert ("[not looked for yet]" in " ".join(entries[code].split())) is not looked_for


def test_a_cause_that_nothing_looks_for_says_so(rankscope):
    assert rankscope("causes", "retained-graph")[1].endswith("No detector of this version looks for it.\n")


@pytest.mark.parametrize("word, close", [("slow-lnik", "slow-link"), ("gc_pause", "gc-pause")])
def test_an_unknown_code_ends_with_2_and_the_closest_one(rankscope, word, close):
    code, out, error = rankscope("causes", word)

    assert (code, out) == (2, "")
    assert error.startswith(f"rankscope: there is no cause '{word}'; did you mean {close}")
