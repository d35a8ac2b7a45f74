"""A loader worker that died: which one, how, and at which sample, from the error that its rank raised."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope.analysis.ends import STOPPED, End, signal_name
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place, read_samples
from rankscope.analysis.tables import column
from rankscope.records.host import ProcessEnd
from rankscope.records.loading import Fetch, PendingFetch

_ERROR = re.compile(r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) (?:is killed by signal: (.+?)\.|exited unexpectedly)")


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """One worker of a rank."""

    words: str
    """`loader worker 1 (process 4711) was ended by SIGKILL, after the batch that begins with sample 96`."""
    place: Place | None
    """Where it was sampled last in the user's code."""


def worker_death(facts: Facts, end: End) -> WorkerDeath | None:
    """The worker of which a rank's exception speaks, or whose death cut the connection that it speaks of; else None."""
    said = _ERROR.search(end.exception)
    if said is not None:
        pids = [int(x) for x in said[1].replace(",", " ").split()]
    else:
        killed = [pid for pid in facts.ranks[end.position].workers if _killed(facts, pid, end.time_ns)]
        pids = killed if end.exception.startswith(("ConnectionResetError", "EOFError", "BrokenPipeError")) else []
    if not pids:
        return None
    pid = min(pids, key=lambda p: _ended_ns(facts, p))
    process = facts.tables.processes.get(pid)
    number = f" {process.worker}" if process is not None and process.worker >= 0 else ""
    how = _how(facts, pid, said[2] if said is not None else None)
    words = f"loader worker{number} (process {pid}) {how}{_sample(facts, pid)}"
    samples = read_samples(facts.tables, pid)
    user = next((stack.user for stack in reversed(samples.stack) if stack.user), ())
    return WorkerDeath(words, user[-1] if user else None)


def _ended_ns(facts: Facts, pid: int) -> int:
    rows = facts.tables.of(ProcessEnd)
    mine = rows[column(rows, ProcessEnd, "of") == pid]
    return int(mine["time_ns"][0]) if len(mine) else 1 << 62


def _killed(facts: Facts, pid: int, before_ns: int) -> bool:
    """Whether a worker had been ended by a signal that nobody sends to ask for an end."""
    rows = facts.tables.of(ProcessEnd)
    mine = rows[column(rows, ProcessEnd, "of") == pid][-1:]
    number = int(column(mine, ProcessEnd, "status")[0]) & 0x7F if len(mine) else 0
    return number not in (0, *STOPPED) and _ended_ns(facts, pid) < before_ns


def _how(facts: Facts, pid: int, said: str | None) -> str:
    rows = facts.tables.of(ProcessEnd)
    mine = rows[column(rows, ProcessEnd, "of") == pid][-1:]
    if len(mine) and column(mine, ProcessEnd, "known")[0]:
        status = int(column(mine, ProcessEnd, "status")[0])
        return f"was ended by {signal_name(status & 0x7F)}" if status & 0x7F else f"left with exit code {status >> 8}"
    return f"was ended by a signal ({said})" if said else "ended unexpectedly"


def _sample(facts: Facts, pid: int) -> str:
    """The batch that it was fetching, or, where it had completed that, waiting to go on from."""
    rows, done = facts.tables.of(PendingFetch), facts.tables.of(Fetch)
    mine = rows[rows["process"] == pid][-1:]
    if not len(mine):
        return ", before its first batch"
    completed = bool(((done["process"] == pid) & (done["time_ns"] == mine["time_ns"][0])).any())
    first = int(column(mine, PendingFetch, "first_index")[0])
    return f", {'after' if completed else 'in'} the batch that begins with sample {first}"
