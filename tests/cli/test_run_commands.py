"""Whatever the command is: its own exit code, its own output, one clear line, nothing left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture.site import __path__ as site_folder
from rankscope.report.report import from_json

pytestmark = pytest.mark.slow
REASON = "why       "


def _reason(error: bytes) -> str:
    """What the report says about why nothing was examined, on one line."""
    text = error.decode().split(REASON, 1)[1].split("\n\n", 1)[0]
    return " ".join(text.split())


class TestCannotStart:
    def _line(self, playground: Any, *command: str) -> tuple[int, str]:
        done = playground.run(*command)
        assert done.stdout == b""
        playground.nothing_is_left()
        assert not list(playground.runs.glob("*"))
        (line,) = done.stderr.decode().splitlines()
        return done.returncode, line

    def test_a_command_that_does_not_exist_exits_127(self, playground):
        code, line = self._line(playground, "no-such-program", "x")

        assert code == 127
        assert line == (
            "rankscope: cannot start 'no-such-program': there is no such program; check the command after `--`"
        )

    def test_a_file_that_is_not_executable_exits_126(self, playground):
        code, line = self._line(playground, "./train.py")

        assert code == 126
        assert line == "rankscope: cannot start './train.py': it is not executable; check the command after `--`"

    def test_a_program_without_a_format_exits_126(self, playground):
        playground.train.chmod(0o755)

        code, line = self._line(playground, "./train.py")

        assert code == 126
        assert "it is neither a program nor a script with a #! line" in line

    def test_a_script_whose_interpreter_is_missing_exits_127(self, playground):
        playground.train.write_text("#!/no/such/python\n")
        playground.train.chmod(0o755)

        code, line = self._line(playground, "./train.py")

        assert code == 127
        assert "the interpreter in its #! line does not exist" in line


class TestEndsInItsOwnWay:
    def test_no_python_program(self, playground):
        done = playground.run("sh", "-c", "echo out; exit 5")

        assert (done.returncode, done.stdout) == (5, b"out\n")
        assert _reason(done.stderr) == "the command started no Python program"
        assert playground.report().verdict == "not-examined"
        playground.nothing_is_left()

    @pytest.mark.parametrize(
        "code, expected",
        [
            ("import sys; sys.exit(7)", 7),
            ("import no_such_module_anywhere", 1),
            ("raise RuntimeError('theirs')", 1),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
            ("import os; os.abort()", 134),
            ("print('fine')", 0),
        ],
    )
    def test_exit_codes_are_the_commands_own(self, playground, code, expected):
        done = playground.python("-c", code)

        assert done.returncode == expected
        assert "did not import torch" in _reason(done.stderr)
        playground.nothing_is_left()

    def test_an_error_after_training_is_shown_as_python_shows_it(self, playground):
        with playground.train.open("a") as file:
            file.write("raise ValueError('theirs')\n")

        done = playground.python("train.py")

        assert done.returncode == 1
        assert b'train.py", line' in done.stderr
        assert b"ValueError: theirs\n" in done.stderr
        assert playground.report().run.steps == 40

    def test_torch_without_a_step_is_not_examined(self, playground):
        done = playground.python("-c", "import torch, time; torch.zeros(3) + 1; time.sleep(1)")

        assert done.returncode == 0
        assert "did not train" in _reason(done.stderr)
        assert playground.report().verdict == "not-examined"

    def test_settings_of_the_working_folder_hold(self, playground):
        (playground.folder / "rankscope.toml").write_text('budget = "7%"\nstages = ["forward", "optimizer"]\n')
        done = playground.python("train.py")

        assert done.returncode == 0
        report = playground.report()
        assert report.overhead.budget == 0.07
        assert "source stacks" in {one.detector for one in report.not_examined}

    def test_a_wrong_setting_is_refused_before_the_command(self, playground):
        (playground.folder / "rankscope.toml").write_text("budget = 5\n")
        done = playground.python("train.py")

        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr == b"rankscope: rankscope.toml: budget: 5 is no share; write for example 1% or 0.01\n"

    def test_standard_output_is_passed_on_byte_by_byte(self, playground):
        code = "import sys\nfor i in range(256): sys.stdout.buffer.write(bytes([i]) * 5)"

        done = playground.python("-c", code)

        assert done.stdout == b"".join(bytes([i]) * 5 for i in range(256))

    def test_much_output_is_not_held_back(self, playground):
        code = "import sys\nfor i in range(200): sys.stdout.buffer.write(b'x' * (1 << 20))"
        read, write = os.pipe()
        process = playground.start(sys.executable, "-c", code, stdout=write)
        os.close(write)
        size = 0
        with os.fdopen(read, "rb") as pipe:
            while part := pipe.read(1 << 20):
                size += len(part)

        assert playground.finish(process).returncode == 0
        assert size == 200 << 20

    def test_standard_input_reaches_the_command(self, playground):
        done = playground.run("cat", input=b"one\ntwo\0three")

        assert done.stdout == b"one\ntwo\0three"

    def test_daemons_that_outlive_the_command_are_not_waited_for(self, playground):
        daemon = playground.folder / "daemon.py"
        daemon.write_text(playground.train.read_text().replace('"40"', '"100000"'))
        quiet = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True"
        start = f"import subprocess, sys; subprocess.Popen([sys.executable, {str(daemon)!r}], {quiet})\n"
        wait = "import os, time\nwhile not os.path.exists('training'): time.sleep(0.05)\n"
        begin = time.monotonic()

        done = playground.python("-c", start + wait + "print('started')")

        assert done.returncode == 0
        assert time.monotonic() - begin < 60
        assert playground.report().run.steps > 5
        assert playground.shared_files() == []
        assert [words for words in playground.processes().values() if "record" in words] == []


class TestSurroundings:
    def test_a_command_that_changes_its_directory(self, playground):
        (playground.folder / "elsewhere").mkdir()

        done = playground.run(
            "sh", "-c", f"cd elsewhere && {sys.executable} ../train.py", runs=Path("runs"), environment={"STEPS": "30"}
        )

        assert done.returncode == 0
        assert playground.report().run.steps == 30
        assert [path.name for path in (playground.folder / "elsewhere").iterdir()] == ["training"]

    def test_its_own_sitecustomize_runs_and_the_command_is_observed(self, playground):
        site = playground.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import os; os.environ['MARK'] = 'theirs'\n")
        with playground.train.open("a") as file:
            file.write("print(os.environ['MARK'], os.environ['PYTHONPATH'])\n")

        done = playground.python("train.py", environment={"PYTHONPATH": str(site), "STEPS": "30"})

        assert done.stdout.decode() == f"trained\ntheirs {next(iter(site_folder))}:{site}\n"
        assert playground.report().run.steps == 30

    def test_a_sitecustomize_that_fails_fails_as_it_would_without_us(self, playground):
        site = playground.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")

        done = playground.python("-c", "print('goes on')", environment={"PYTHONPATH": str(site)})

        assert (done.returncode, done.stdout) == (0, b"goes on\n")
        assert b"RuntimeError: theirs" in done.stderr

    def test_files_named_like_modules_of_ours_are_not_imported(self, playground):
        for name in ("queue", "rankscope", "msgspec", "json"):
            (playground.folder / f"{name}.py").write_text("raise SystemExit('wrong module')\n")
        script = playground.folder / "sub" / "train.py"
        script.parent.mkdir()
        script.write_text(playground.train.read_text())

        done = playground.python("sub/train.py", environment={"STEPS": "30"})

        assert done.returncode == 0, done.stderr
        assert playground.report().run.steps == 30

    @pytest.mark.parametrize(
        "command, reason",
        [
            (("env", "PYTHONPATH=/tmp", sys.executable, "train.py"), "the command replaces PYTHONPATH"),
            ((sys.executable, "-I", "train.py"), "`python -I` keeps rankscope out"),
            ((sys.executable, "-uE", "train.py"), "`python -E` keeps rankscope out"),
            ((sys.executable, "-S", "-c", "import time; time.sleep(0.5)"), "`python -S` keeps rankscope out"),
            (("env", "-i", sys.executable, "train.py"), "the command clears the environment"),
            (("sh", "-c", f"PYTHONPATH=/tmp {sys.executable} train.py"), "the command replaces PYTHONPATH"),
        ],
    )
    def test_what_keeps_us_out_is_said(self, playground, command, reason):
        done = playground.run(*command)

        assert done.returncode == 0
        assert _reason(done.stderr).startswith(reason)
        assert _reason(done.stderr).endswith("or call rankscope.start() in the script")
        playground.nothing_is_left()

    def test_two_runs_at_once_do_not_disturb_each_other(self, playground):
        first, second = (
            playground.start(sys.executable, "train.py", environment={"STEPS": steps}) for steps in ("60", "80")
        )

        assert [playground.finish(process).returncode for process in (first, second)] == [0, 0]
        files = sorted(playground.runs.glob("*/report.json"))
        assert len(files) == 2
        assert {file.read_text().count('"steps": 60,') for file in files} == {0, 1}
        playground.nothing_is_left()


class TestStreams:
    """Whatever becomes of our words, the command ends as it does without us and its report is kept."""

    def _run(self, playground, redirection, program="train.py"):
        options = ("--report-json", "r.json")
        line = shlex.join(playground.command(sys.executable, program, options=options)) + " " + redirection
        return subprocess.run(["sh", "-c", line], cwd=playground.folder, capture_output=True, timeout=120)

    @pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", ">&- 2>&-", "<&- 2>&-"])
    def test_standard_error_that_takes_nothing(self, playground, redirection):
        done = self._run(playground, redirection)

        assert (done.returncode, done.stdout) == (0, b"" if ">&- 2" in redirection else b"trained\n")
        assert from_json((playground.folder / "r.json").read_bytes(), "r.json").run.steps == 40

    def test_the_exit_code_is_the_command_s(self, playground):
        (playground.folder / "seven.py").write_text("raise SystemExit(7)")

        assert self._run(playground, "2>/dev/full", "seven.py").returncode == 7

    def test_standard_error_whose_reader_has_gone(self, playground):
        done = self._run(playground, "2>&1 >/dev/null | true")

        assert done.returncode == 0
        assert (playground.folder / "r.json").exists()

    def test_output_that_was_asked_for_and_cannot_be_written(self, playground):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m rankscope causes > /dev/full"],
            cwd=playground.folder, capture_output=True, timeout=60,
        )  # fmt: skip

        assert done.returncode == 2
        assert done.stderr.startswith(b"rankscope: standard output: cannot be written (No space left on device)")

    def test_an_argument_that_is_no_text(self, playground):
        done = playground.run(sys.executable, "train.py", b"\xff\xfe".decode("utf-8", "surrogateescape"))

        assert done.returncode == 0
        assert playground.report().run.command[-1] == "\\xff\\xfe"

    def test_a_working_folder_that_is_gone(self, playground):
        line = f"mkdir g; cd g; rmdir ../g; exec {sys.executable} -m rankscope run -- {sys.executable} -c 'print(5)'"
        done = subprocess.run(
            ["sh", "-c", line], cwd=playground.folder, capture_output=True, timeout=120,
            env={**os.environ, "XDG_STATE_HOME": str(playground.folder / "state")},
        )  # fmt: skip

        assert (done.returncode, done.stdout) == (0, b"5\n"), done.stderr
        assert len(list((playground.folder / "state" / "rankscope" / "runs").glob("*/report.json"))) == 1
