"""Stacks of another Python process by py-spy, a program that comes as a wheel: nobody waits for its answer."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.base.process_stat import process_stat
from rankscope.base.thread_stat import status_number, thread_numbers

MOST_FRAMES = 64
"""Innermost Python frames of a thread that are kept: deeper are recursions."""
MOST_NATIVE = 4
"""Innermost native frames that are kept; above them lie the layers that lead there."""
INTERPRETER = re.compile(r"(lib)?python[\d.]*|libffi")
"""Libraries whose frames say nothing of their own: the interpreter's."""
GLUE = re.compile(r"0x|pybind11::|std::_Function|std::function|_call_function_pointer")
"""Functions that say nothing either: without a name, or between Python and C, or within C++'s function objects."""
CAP_SYS_PTRACE = 19
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class NoStack(ValueError):
    """Why there is no stack, in words that can follow `no stack could be taken:`."""

    def __init__(self, why: str, *, final: bool = True) -> None:
        super().__init__(why)
        self.final = final
        """Another try would say the same."""


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread of a Python process at one moment."""

    tid: int
    """The kernel's number of the thread; 0: not known."""
    name: str
    main: bool
    holds_lock: bool
    """It holds the interpreter lock."""
    frames: tuple[str, ...]
    """`file:line:function`, outermost first."""
    native: tuple[str, ...] = ()
    """`function (library)` below the innermost Python frame, outermost first."""


def find_py_spy() -> str | None:
    """The program: one on the user's PATH (it may have been given rights to trace), else the one installed with us."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=sysconfig.get_path("scripts")) or _of_wheel()


def _of_wheel() -> str | None:
    """Where pip has put it: `--user` and `--target` have folders of their own."""
    try:
        files = importlib.metadata.files("py-spy") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (str(file.locate()) for file in files if file.name == "py-spy")
    return next((path for path in paths if os.access(path, os.X_OK)), None)


class Dump:
    """One run of py-spy on one process. Raises NoStack where it cannot be started.

    Python frames are read without pausing the process; for native ones it is paused for the moment that it takes.
    """

    def __init__(self, pid: int, *, native: bool = False) -> None:
        program = find_py_spy()
        if program is None:
            raise NoStack("py-spy is not installed, which takes stacks from outside (pip install py-spy)")
        self._pid = pid
        self._stopped_before = process_stat(pid).state in "Tt"
        self._pauses = native
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        how = "--native" if native else "--nonblocking"
        try:
            self._child = subprocess.Popen(
                [program, "dump", "--pid", str(pid), "--json", how],
                stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
                env={**os.environ, "RUST_BACKTRACE": "0"},
            )  # fmt: skip
        except OSError as error:
            self._close_files()
            raise NoStack(f"{program} cannot be started ({error.strerror})") from error

    def ended(self) -> bool:
        """Whether py-spy has answered."""
        return self._child.poll() is not None

    def close(self) -> None:
        """End py-spy where it has not answered; what it has paused goes on."""
        if not self.ended():
            self._child.kill()
            self._child.wait()
            if self._pauses:
                self._let_go_on()
        self._close_files()

    def _let_go_on(self) -> None:
        """A tracer that is killed between its stop signal and the answer to it leaves the process stopped."""
        for _ in range(5):
            time.sleep(0.01)
            if not self._stopped_before and process_stat(self._pid).state == "T":
                with suppress(OSError):  # it has ended, or is another user's
                    os.kill(self._pid, signal.SIGCONT)

    def _close_files(self) -> None:
        self._out.close()
        self._err.close()

    def threads(self) -> list[ThreadStack]:
        """All Python threads, of a dump that has ended. Raises NoStack."""
        self._out.seek(0)
        self._err.seek(0)
        out, err = self._out.read(), self._err.read().decode("utf-8", "replace")
        # Not by the exit code alone: where SIGCHLD is ignored, nobody learns it.
        if self._child.returncode != 0 or not out.strip():
            raise _refusal(self._pid, err)
        try:
            numbers = thread_numbers(self._pid)
            found = [_thread(self._pid, entry, numbers) for entry in json.loads(out)]
        except (ValueError, KeyError, TypeError) as error:
            raise NoStack(f"the answer of py-spy is not understood ({type(error).__name__}: {error})") from error
        if not found:
            raise NoStack("it has no Python thread", final=False)
        return found


def main_thread(threads: list[ThreadStack]) -> ThreadStack:
    """The thread that the process began with; the last one where none says so (py-spy lists the newest first)."""
    return next((thread for thread in threads if thread.main), threads[-1])


def _thread(pid: int, entry: dict[str, Any], numbers: dict[int, int]) -> ThreadStack:
    frames: list[str] = []
    native: list[str] = []
    for frame in entry["frames"]:  # innermost first
        if frame.get("module") is None:
            frames.append(f"{frame['filename']}:{frame['line']}:{frame['name']}")
        elif not frames:
            library = os.path.basename(frame["filename"])
            if not INTERPRETER.match(library) and not GLUE.match(frame["name"]):
                native.append(f"{frame['name']} ({library})")
    own, name = entry.get("os_thread_id") or 0, entry.get("thread_name") or ""
    tid = numbers.get(own, own)  # Python knows the number in its own namespace
    return ThreadStack(
        tid=tid,
        name=name,
        main=tid == pid or name == "MainThread",
        holds_lock=bool(entry.get("owns_gil")),
        frames=tuple(reversed(frames[:MOST_FRAMES])),
        native=tuple(reversed(native[:MOST_NATIVE])),
    )


def _refusal(pid: int, text: str) -> NoStack:
    """What py-spy says on its standard error, in our words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = (lines or ["no reason given"])[0].removeprefix("Error: ")
    if process_stat(pid).state in "XZ":
        return NoStack("it has ended meanwhile")
    if re.search(r"permission denied|operation not permitted|os error (1|13)\b", text, re.IGNORECASE):
        return NoStack(f"this user may not look into it ({_forbidden_by(pid)})")
    if "failed to find python version" in text.lower():
        return NoStack("it is no Python process, or of a kind that py-spy does not know")
    return NoStack(f"py-spy: {said}", final=False)


def _forbidden_by(pid: int) -> str:
    """Why tracing is refused, as far as it can be seen, and what would allow it."""
    tracer = status_number(pid, "TracerPid")
    if tracer:
        return f"process {tracer} traces it already"
    try:
        scope = YAMA.read_text(encoding="ascii").strip()
    except OSError:
        scope = "0"
    if scope in ("1", "2", "3"):
        return f"ptrace is forbidden: kernel.yama.ptrace_scope is {scope}; root may, or 0 allows it"
    if os.geteuid() != 0 and _owner(pid) not in (None, os.geteuid()):
        return "it is another user's; root may"
    if not _capabilities() >> CAP_SYS_PTRACE & 1:
        return "ptrace is forbidden; in a container start it with --cap-add SYS_PTRACE"
    return "ptrace is forbidden"


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _capabilities() -> int:
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError):
        pass  # no /proc: nothing is known of rights
    return 0
