"""What the recorder saw of a process whose own sampler was silent: the last look at it from outside."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analysis.stacks import Stack, parse_place
from rankscope.analysis.tables import Tables, column
from rankscope.records.host import OutsideStack, StackSample
from rankscope.records.process import Process


@dataclass(frozen=True, slots=True)
class OutsideLook:
    """One look at one process."""

    time_ns: int
    stack: Stack | None
    why_no_stack: str
    stopped: bool
    """SIGSTOP or a debugger held it."""
    holds_lock: bool
    """The thread held the interpreter lock."""
    runs: bool
    """It used a CPU."""
    sampled: bool
    """The process has a sampler, which was silent then: it asks for the interpreter lock and did not get it."""


def last_look(tables: Tables, pid: int) -> OutsideLook | None:
    """The newest look at a process; None where there was none."""
    rows = tables.of(OutsideStack)
    rows = rows[column(rows, OutsideStack, "of") == pid]
    if not len(rows):
        return None
    rows = rows[rows["time_ns"] == rows["time_ns"].max()]
    rows = rows[column(rows, OutsideStack, "depth").argsort()]
    last = {name: int(column(rows[:1], OutsideStack, name)[0]) for name in ("state", "holds_lock", "runs", "known")}
    texts = [tables.name(int(row["process"]), int(row["name"])) for row in rows]
    process = tables.processes.get(pid, Process(pid))
    frames = tuple(parse_place(text) for text in reversed(texts))
    return OutsideLook(
        time_ns=int(rows["time_ns"][0]),
        stack=Stack(frames, process.library_folders, process.torch_folder) if last["known"] else None,
        why_no_stack="" if last["known"] else texts[0],
        stopped=chr(last["state"]) in "Tt",
        holds_lock=bool(last["holds_lock"]),
        runs=bool(last["runs"]),
        sampled=bool((tables.of(StackSample)["process"] == pid).any()),
    )
