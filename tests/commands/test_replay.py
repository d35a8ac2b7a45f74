import pytest


@pytest.fixture
def saved(add_run):
    root = add_run("20260101-100000-aaaa", "first", 10.0)
    folder = root / "snapshots"
    folder.mkdir()
    for name in ("rank1-step20.pt", "rank0-step20.pt", "rank1-step3.pt", "notes.txt"):
        (folder / name).write_bytes(b"")
    return folder


def test_the_first_snapshot_is_shown_with_how_to_load_it(rankscope, saved):
    code, out, error = rankscope("replay", "first")

    assert (code, error) == (0, "")
    assert [line.partition(":")[0] for line in out.splitlines()[:3]] == [
        "# rank 1, step 3", "# rank 0, step 20", "# rank 1, step 20",
    ]  # fmt: skip
    assert f"torch.load('{saved.absolute() / 'rank1-step3.pt'}')" in out


def test_step_and_rank_choose_one(rankscope, saved):
    code, out, _ = rankscope("replay", "first", "--step", "20", "--rank", "1")

    assert code == 0
    assert out.startswith("# rank 1, step 20: ")
    assert out.count("#  rank") + out.count("# rank") == 1


def test_a_step_without_a_snapshot_ends_with_2_and_says_which_there_are(rankscope, saved):
    code, out, error = rankscope("replay", "first", "--step", "7")

    assert (code, out) == (2, "")
    assert error.endswith("there are step 3 of rank 1, step 20 of rank 0, step 20 of rank 1\n")


def test_a_run_without_snapshots_says_how_to_get_them(rankscope, add_run):
    add_run("20260101-100000-aaaa", "first", 10.0)

    code, out, error = rankscope("replay", "first")

    assert (code, out) == (2, "")
    assert error.endswith("no batch was saved; start the run with `rankscope run --on-nan snapshot -- ...`\n")
