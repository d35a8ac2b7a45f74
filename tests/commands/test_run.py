"""Bad options of `run` end with 2 and one line; what it does with commands is tested in tests/cli."""

import pytest


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "no command given; write it after `--`"),
        (["--"], "no command given; write it after `--`"),
        (["--level", "full", "--", "true"], "argument --level: invalid choice: 'full'"),
        (["--budget", "lots", "--", "true"], "--budget: 'lots' is no share; write for example 1% or 0.01"),
        (["--config", "none.toml", "--", "true"], "none.toml: cannot be read (No such file or directory)"),
        (["--config", "bad.toml", "--", "true"], "bad.toml: "),
        (["--config", "wrong.toml", "--", "true"], "wrong.toml: unknown key 'levle'"),
        (["--report-json", "no/r.json", "--", "true"], "no/r.json: its folder "),
        (["--port", "99999", "--", "true"], "argument --port: 99999 is out of range: write a whole number, 1 to 65535"),
        (["--report-html", ".", "--", "true"], ".: cannot be written; choose another place"),
        (["--fail-on", "info", "--", "true"], "argument --fail-on: invalid choice: 'info'"),
    ],
)
def test_bad_options_start_nothing(rankscope, runs, tmp_path, words, message):
    (tmp_path / "bad.toml").write_text("level = \n")
    (tmp_path / "wrong.toml").write_text('levle = "deep"\n')

    code, out, error = rankscope("run", *words)

    assert (code, out) == (2, "")
    assert error.startswith(f"rankscope: {message}")
    assert error.count("\n") == 1
    assert not runs.exists()
