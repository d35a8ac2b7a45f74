"""Operation tables drawn as a Chrome trace: processes are replicas, threads are ranks and streams."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from rankscope.artefacts.opening import opened
from rankscope.artefacts.optable.columns import Values, table
from rankscope.artefacts.reader import Unreadable
from rankscope.records.imported.operation_table import OperationTable

SIGNS: Final = re.compile(
    rb'"(?:name|cat)"\s*:\s*"(?:forward|backward)[-_](?:compute|send|recv|backward)'
    rb'|"(?:name|cat)"\s*:\s*"(?:grads|params)[-_](?:reduce|all|sync)'
)
MOST_BYTES: Final = 1 << 29
"""Half a gigabyte is three million operations; Parquet holds more of them in less."""
_STAGE: Final = re.compile(r"\b(?:PP|pipeline)[ _-]?(?:rank|stage)?[ _-]?\[?(\d+)|\bstage[ _-]?(\d+)", re.IGNORECASE)
_REPLICA: Final = re.compile(r"\b(?:DP|data[ _-]parallel)[ _-]?(?:rank)?[ _-]?\[?(\d+)", re.IGNORECASE)
_MEMBER: Final = re.compile(r"\b(?:TP|tensor)[ _-]?(?:rank)?[ _-]?\[?(\d+)", re.IGNORECASE)
_RANK: Final = re.compile(r"(?:\bglobal[ _-]?rank|(?<!\w\w )\brank)[ _-]?\[?(\d+)", re.IGNORECASE)

Thread = tuple[object, object]
"""Process and thread, as events name them."""


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    ph: str = ""
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: dict[str, Any] | None = None


class _Trace(msgspec.Struct, gc=False):
    traceEvents: list[_Event]


def read(path: Path) -> OperationTable:
    """The table of a Chrome JSON, a list of events or an object around it. Raises `Unreadable`."""
    with opened(path) as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unreadable(f"unpacks to more than {MOST_BYTES >> 20} MiB of JSON; write the table as Parquet")
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    try:
        events = (
            msgspec.json.decode(data, type=list[_Event])
            if data.startswith(b"[")
            else msgspec.json.decode(data, type=_Trace).traceEvents
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"the JSON is broken or cut off ({error})") from error
    spans = [e for e in events if e.ph == "X" and e.args and e.name and _hashable(e)]
    if not spans:
        raise Unreadable("holds no operation: no event has a duration and arguments")
    places = _places(events, spans)
    names = {name: number for number, name in enumerate(dict.fromkeys(e.name for e in spans))}
    columns = {
        "kind": np.array([names[e.name] for e in spans]),
        "start": _column([e.ts for e in spans]),
        "duration": _column([e.dur for e in spans]),
        "step": _of(spans, "step", "iteration", "iter"),
        "order": _of(spans, "seq_id", "seq"),
        "chunk": _of(spans, "model_chunk", "mc", "chunk"),
        "micro_batch": _of(spans, "mb_id", "microbatch", "micro_batch"),
    }
    for position, ours in enumerate(("rank", "replica", "stage")):
        columns[ours] = _column([places[e.pid, e.tid][position] for e in spans])
    for ours, keys in {"rank": ("rank", "global_rank"), "replica": ("dp_rank",), "stage": ("stage", "pp_rank")}.items():
        own = _of(spans, *keys)
        columns[ours] = np.where(np.isfinite(own), own, columns[ours])
    return table(str(path), columns.get, {"start": "us", "duration": "us"}, tuple(names))


def _places(events: list[_Event], spans: list[_Event]) -> dict[Thread, tuple[float, float, float]]:
    """Thread -> (rank, replica, stage), NaN where nothing tells.

    The rank stands in the thread's name, or follows from its number: the threads of a rank stand side by side, as many
    for each. Without either, ranks are counted in the order of stages and replicas, as Megatron numbers them.
    """
    threads: dict[Thread, str] = {(e.pid, e.tid): "" for e in spans}
    if len(threads) > 1 << 20:
        raise Unreadable(f"has {len(threads):,} threads: this is no operation table")
    processes: dict[object, str] = {}
    for e in events:
        if e.ph != "M" or not e.args or not _hashable(e):
            continue
        if e.name == "thread_name":
            threads[e.pid, e.tid] = str(e.args.get("name", ""))
        elif e.name == "process_name":
            processes[e.pid] = str(e.args.get("name", ""))
    where: dict[Thread, tuple[float, float, float, float]] = {}
    for (pid, tid), name in threads.items():
        full = f"{processes.get(pid, '')} {name}"
        replica = _first(_REPLICA, processes.get(pid, ""), name)
        if np.isnan(replica) and not np.isnan(_first(_STAGE, full)) and isinstance(pid, int):
            replica = float(pid)
        where[pid, tid] = (_first(_RANK, full), replica, _first(_STAGE, full), _first(_MEMBER, full))
    if all(np.isnan(place[0]) for place in where.values()):
        ranks = _counted(where)
        return {thread: (ranks[thread], place[1], place[2]) for thread, place in where.items()}
    return {thread: place[:3] for thread, place in where.items()}


def _counted(where: dict[Thread, tuple[float, float, float, float]]) -> dict[Thread, float]:
    """Ranks by the numbers of the threads, or by the order of the places."""
    members: dict[tuple[object, ...], list[Thread]] = {}
    for thread, (_, replica, stage, member) in where.items():
        place = (None if np.isnan(part) else part for part in (stage, replica, member))
        members.setdefault((thread[0], *place), []).append(thread)
    numbers = {key: [t[1] for t in threads if isinstance(t[1], int)] for key, threads in members.items()}
    sizes = {len(n) for n in numbers.values()}
    if len(sizes) == 1 and (size := sizes.pop()) > 1:
        firsts = {key: min(n) for key, n in numbers.items()}
        regular = all(first % size == 0 and max(numbers[key]) == first + size - 1 for key, first in firsts.items())
        if regular and len(set(firsts.values())) == len(firsts):
            return {t: float(firsts[key] // size) for key, threads in members.items() for t in threads}
    keys = sorted(members, key=lambda key: [(part is None, str(type(part)), part) for part in (*key[1:], key[0])])
    return {t: float(number) for number, key in enumerate(keys) for t in members[key]}


def _hashable(event: _Event) -> bool:
    return isinstance(event.pid, (int, str, float, type(None))) and isinstance(event.tid, (int, str, float, type(None)))


def _first(pattern: re.Pattern[str], *texts: str) -> float:
    for text in texts:
        found = pattern.search(text)
        if found:
            return float(next(group for group in found.groups() if group is not None))
    return float("nan")


def _of(spans: list[_Event], *keys: str) -> Values:
    return _column([next((e.args[k] for k in keys if e.args and k in e.args), None) for e in spans])


def _column(values: list[Any]) -> Values:
    """NaN for what is no number; numbers in text count."""
    out = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if isinstance(value, (int, float)):
            out[i] = value if abs(value) < 1e300 else np.nan
        elif isinstance(value, str):
            try:
                out[i] = float(value)
            except ValueError:
                continue
    return out
