"""Python processes that rankscope did not start: which of them are the ranks of one launch, and what they do now."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.base.process_stat import process_stat

PY_SPY_S = 15.0
"""For one stack; a process with much native code takes seconds to be looked at the first time."""


def local_ranks(pid: int) -> dict[int, int]:
    """rank -> pid of all ranks of a launch on this machine, found from one of its processes. Raises UserError."""
    if process_stat(pid).state == "X":
        raise UserError(f"{pid}: there is no such process; `ps aux | grep torchrun` shows those that are there")
    seen: dict[int, int] = {}
    for candidate in _family(pid):
        rank = _rank(candidate)
        if rank is not None:
            seen.setdefault(rank, candidate)
    return seen or {0: pid}


def _family(pid: int) -> list[int]:
    """The process, what it started, and, where it is a rank itself, what its launcher started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    root = _parent(pid) if _rank(pid) is not None else pid
    found, todo = [pid], [root]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.append(child)
                todo.append(child)
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _rank(pid: int) -> int | None:
    """Its `RANK`, where the process is one of a launch and no child of a rank (a loader worker has the same)."""
    rank = _variable(pid, b"RANK")
    return rank if rank is not None and _variable(_parent(pid), b"RANK") is None else None


def _variable(pid: int, name: bytes) -> int | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\\0")
    except OSError:
        return None
    value = next((word.partition(b"=")[2] for word in words if word.startswith(name + b"=")), b"")
    return int(value) if value.isdigit() else None


def stack_from_outside(pid: int) -> tuple[str, tuple[str, ...]]:
    """(what the main thread does, its stack outermost first), by py-spy. UserError says why it could not be taken."""
    program = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if program is None:
        raise UserError("py-spy is not installed, which takes stacks from outside: pip install py-spy")
    try:
        done = subprocess.run(
            [program, "dump", "--pid", str(pid), "--json", "--nonblocking"],
            capture_output=True, text=True, timeout=PY_SPY_S, check=False, env={**os.environ, "RUST_BACKTRACE": "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"{pid}: py-spy did not answer within {PY_SPY_S:.0f} s") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[0].removeprefix("Error: ")
        raise UserError(f"{pid}: its stack cannot be taken ({why}); may this user trace it (ptrace)?")
    threads = json.loads(done.stdout)
    main = next((t for t in threads if t.get("thread_name") == "MainThread"), threads[0] if threads else None)
    if main is None:
        raise UserError(f"{pid}: has no Python thread")
    frames = tuple(f"{f['filename']}:{f['line']}:{f['name']}" for f in reversed(main["frames"]))
    holds = ", holds the interpreter lock" if main.get("owns_gil") else ""
    return f"{'runs' if main.get('active') else 'waits'}{holds}", frames
