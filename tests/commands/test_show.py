import pytest


@pytest.fixture(autouse=True)
def two_runs(add_run):
    add_run("20260101-100000-aaaa", "first", 10.0)
    add_run("20260102-100000-aabb", "second", 20.0)


@pytest.mark.parametrize(
    "word, shown",
    [
        ("20260101-100000-aaaa", "first"),
        ("20260101", "first"),
        ("second", "second"),
        ("last", "second"),
        ("runs/20260101-100000-aaaa", "first"),
    ],
)
def test_a_run_is_found_by_id_prefix_name_folder_and_last(rankscope, word, shown):
    code, out, error = rankscope("show", word)

    assert (code, error) == (0, "")
    assert out.startswith("HEALTHY")
    assert f"{shown} · 4 ranks" in out


@pytest.mark.parametrize(
    "word, message",
    [
        ("202601", "'202601' begins the ids of 2 runs (20260101-100000-aaaa, 20260102-100000-aabb); write more of it"),
        ("nothing", "there is no run 'nothing' in "),
    ],
)
def test_a_run_that_cannot_be_told_ends_with_2_and_one_line(rankscope, word, message):
    code, out, error = rankscope("show", word)

    assert (code, out) == (2, "")
    assert error.startswith(f"rankscope: {message}")
    assert error.count("\n") == 1


def test_the_newest_of_two_runs_with_one_name_is_meant(rankscope, add_run):
    add_run("20260103-100000-cccc", "second", 30.0)

    assert "30.0 ms" in rankscope("show", "second")[1]


def test_a_run_without_a_report_says_how_to_make_one(rankscope, add_run):
    root = add_run("20260103-100000-cccc", "killed", finished=False)

    assert rankscope("show", "killed") == (
        2, "", f"rankscope: run {root.name} has no report; make it with `rankscope diagnose {root}`\n",
    )  # fmt: skip


def test_the_html_page_is_named(rankscope, runs):
    page = runs / "20260101-100000-aaaa" / "report.html"
    page.touch()

    assert rankscope("show", "first")[2] == f"rankscope: HTML report in {page}\n"
