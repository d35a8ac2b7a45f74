"""Python processes that rankscope did not start: which of them are the ranks of one launch, and what they do now."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rankscope.base.clock import now_ns
from rankscope.base.errors import UserError
from rankscope.base.outside import STOPPED, Look, Seen
from rankscope.base.own_command import PACKAGE
from rankscope.base.process_stat import process_stat
from rankscope.base.py_spy import Dump, NoStack, ThreadStack
from rankscope.base.rundir import RunDir, ring_folders
from rankscope.base.thread_stat import status_number
from rankscope.recorder.ring_reader import NotARing, RingReader
from rankscope.views.stacks import RankStack

LIMIT_NS = 10_000_000_000
"""For the Python frames of one process."""
NATIVE_NS = 10_000_000_000
"""For the native frames of all: py-spy reads the symbols of each library of torch first."""
OURS = os.path.join(PACKAGE, "rankscope", "")
"""Frames of a process that rankscope observes are its own as well."""
AT_ONCE = 4
"""Processes that are looked at at the same time."""
MOST_CHILDREN = 64
"""Python processes below one that is of no launch (`mp.spawn`, a loader's workers)."""


@dataclass(frozen=True, slots=True)
class Found:
    """One process to be looked at."""

    pid: int
    rank: int | None
    """None: it is of no launch that says so."""


def find_processes(pids: Iterable[int]) -> list[Found]:
    """All ranks on this machine of the launches that the processes belong to, by rank; of a process without ranks, it
    and the Python processes below it. Raises UserError for a number that is no process."""
    found: dict[int, Found] = {}
    children = _children()
    for pid in pids:
        _must_exist(pid)
        family = _family(pid, children)
        ranks = [Found(_python_of(one, children), rank) for one in family if (rank := _rank(one)) is not None]
        if not ranks:
            below = [one for one in family[1:] if _is_python(one) is True][:MOST_CHILDREN]
            ranks = [Found(one, None) for one in (pid, *below)]
        for one in ranks:
            found.setdefault(one.pid, one)
    return sorted(found.values(), key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def look_at(found: Sequence[Found]) -> list[RankStack]:
    """What each of them does. Raises UserError where of none anything can be told."""
    seen = _look([one.pid for one in found])
    below = _native_frames(seen)
    told = [_rank_stack(one, look, below.get(one.pid, ())) for one, look in zip(found, seen, strict=True)]
    if all(look.state in ("X", "Z") or _not_python(look) for look in seen):
        words = "is no Python process, and none is below it" if _not_python(seen[0]) else _state(seen[0])
        raise UserError(f"{found[0].pid}: {words}; give the number of a training process or of its torchrun")
    return told


def alive(run: RunDir) -> set[int]:
    """Observed processes of a run that are there now, on this machine."""
    found: set[int] = set()
    for path in (path for folder in ring_folders(run) for path in folder.glob("*.ring")):
        with suppress(NotARing, OSError):
            reader = RingReader(path)
            if reader.alive():
                found.add(reader.pid)
            reader.close()
    return found


# -- which processes ---------------------------------------------------------------------------------------------------


def _must_exist(pid: int) -> None:
    if not Path("/proc/self/stat").exists():
        raise UserError("/proc cannot be read here: nothing is known of other processes; mount it, or use `stacks RUN`")
    if process_stat(pid).state != "X":
        return
    with suppress(ProcessLookupError, OverflowError):
        with suppress(PermissionError):
            os.kill(pid, 0)
        raise UserError(f"{pid}: is another user's and not to be seen in /proc (hidepid); root sees it")
    elsewhere = [other for other in _all_pids() if status_number(other, "NSpid") == pid]
    if elsewhere:
        raise UserError(f"{pid}: is the number that process {elsewhere[0]} has inside its container; give that one")
    raise UserError(f"{pid}: there is no such process; `ps aux | grep torchrun` shows those that are there")


def _all_pids() -> list[int]:
    with suppress(OSError):
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def _children() -> dict[int, list[int]]:
    """pid -> what it has started."""
    children: dict[int, list[int]] = {}
    for pid in sorted(_all_pids()):
        children.setdefault(_parent(pid), []).append(pid)
    return children


def _family(pid: int, children: dict[int, list[int]]) -> list[int]:
    """The process, what it started, and, where it or a parent is a rank, what its launcher started."""
    root = pid
    above = pid
    while above > 1:
        if _rank(above) is not None:
            root = _parent(above)
            break
        above = _parent(above)
    found, todo = [pid], [root]
    while todo:
        for child in children.get(todo.pop(0), []):
            if child not in found:
                found.append(child)
            todo.append(child)
    return found


def _parent(pid: int) -> int:
    return status_number(pid, "PPid")


def _rank(pid: int) -> int | None:
    """Its `RANK`, where the process is one of a launch and no child of a rank (a loader worker has the same).

    A launcher may have a `RANK` of its own: the number of its node.
    """
    mine, above = _environment(pid), _environment(_parent(pid))
    if b"RANK" not in mine or (b"RANK" in above and (b"LOCAL_RANK" in above or b"LOCAL_RANK" not in mine)):
        return None
    value = mine[b"RANK"]
    return int(value) if value.isdigit() else None


def _environment(pid: int) -> dict[bytes, bytes]:
    """What a process was started with; {} where it must not be read."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (word.partition(b"=") for word in words)}


def _python_of(rank: int, children: dict[int, list[int]]) -> int:
    """The rank itself, or the Python below it where a shell or `numactl` stands between (`torchrun --no-python`)."""
    todo = [rank]
    while todo:
        pid = todo.pop(0)
        if _is_python(pid) is not False:
            return pid
        todo += children.get(pid, [])
    return rank


def _is_python(pid: int) -> bool | None:
    """None where this user may not know."""
    with suppress(OSError):
        if re.search(r"python|pypy", os.path.basename(os.readlink(f"/proc/{pid}/exe"))):
            return True
        return b"libpython" in Path(f"/proc/{pid}/maps").read_bytes()
    return None


# -- what they do ------------------------------------------------------------------------------------------------------


def _look(pids: Sequence[int]) -> list[Seen]:
    """Look at a few at a time."""
    seen: dict[int, Seen] = {}
    todo = list(pids)
    going: dict[int, Look] = {}
    try:
        while todo or going:
            while todo and len(going) < AT_ONCE:
                pid = todo.pop(0)
                going[pid] = Look(pid, LIMIT_NS)
            for pid in [pid for pid, look in going.items() if look.done()]:
                seen[pid] = going.pop(pid).seen()
            time.sleep(0.01)
    finally:
        for look in going.values():
            look.close()
    return [seen[pid] for pid in pids]


def _native_frames(seen: Sequence[Seen]) -> dict[int, tuple[str, ...]]:
    """Below the innermost Python frame, of processes that sleep or hold the lock, as long as there is time."""
    wanted = [one for one in seen if one.stack is not None and not one.stopped and (not one.runs or one.holds_lock)]
    deadline = now_ns() + NATIVE_NS
    found: dict[int, tuple[str, ...]] = {}
    going: dict[int, tuple[Dump, ThreadStack]] = {}
    while wanted or going:
        while wanted and len(going) < AT_ONCE and now_ns() < deadline:
            one = wanted.pop(0)
            assert one.stack is not None
            with suppress(NoStack):
                going[one.pid] = Dump(one.pid, native=True), one.stack
        if now_ns() > deadline:
            wanted = []
        for pid, (dump, stack) in list(going.items()):
            if not dump.ended() and now_ns() < deadline:
                continue
            # Not every py-spy can read native frames, nor any all programs: the Python frames are there already.
            with suppress(NoStack):
                if dump.ended():
                    found[pid] = next((t.native for t in dump.threads() if _same(t, stack)), ())
            dump.close()
            del going[pid]
        time.sleep(0.01)
    return found


def _same(thread: ThreadStack, seen: ThreadStack) -> bool:
    """Whether it is the thread that was seen before, still at the same place."""
    return thread.tid == seen.tid and thread.frames == seen.frames


def _rank_stack(found: Found, seen: Seen, native: tuple[str, ...]) -> RankStack:
    stack = seen.stack
    return RankStack(
        rank=found.rank if found.rank is not None else found.pid,
        who=f"process {found.pid}" if found.rank is None else "",
        state=_state(seen) if found.rank is None else f"(process {found.pid}) {_state(seen)}",
        since_ms=None,
        last_call="",
        frames=tuple(f for f in stack.frames if not f.startswith(OURS)) if stack is not None else (),
        native=native,
        why_no_stack=seen.why_no_stack,
    )


def _state(seen: Seen) -> str:
    if seen.state == "X":
        return "has ended"
    if seen.state == "Z":
        return "has ended, and its parent has not asked how (zombie)"
    if seen.stopped:
        return STOPPED + (f" (process {seen.tracer} traces it)" if seen.tracer else "")
    if seen.runs:
        text = "runs"
    elif seen.state == "D":
        text = "waits for a disk or another device"
    else:
        text = f"waits ({seen.waits_in})" if seen.waits_in else "sleeps"
    if seen.holds_lock:
        text += ", holds the interpreter lock"
        if seen.stack is not None and not seen.stack.main:
            text += f" (its thread {seen.stack.name or seen.stack.tid})"
    return text


def _not_python(seen: Seen) -> bool:
    return seen.stack is None and _is_python(seen.pid) is False
