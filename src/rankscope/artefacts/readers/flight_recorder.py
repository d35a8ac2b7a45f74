"""Flight Recorder dumps of torch.distributed (NCCL and gloo)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.artefacts.safe_pickle import load_plain
from rankscope.records.imported.flight_dump import FlightDump, FlightEntry, FlightGroup
from rankscope.records.imported.table import Table

LARGEST: Final = 256 << 20
"""Bytes of one dump: 2,000 entries with stacks have 10 MB."""
KEYS: Final = (b"pg_config", b"pg_status", b"entries", b"nccl_version", b"comm_lib_version")
LIBRARY: Final = ("/torch/", "/site-packages/", "<frozen", "/lib/python")
_BACKEND: Final = re.compile(r"^[a-z]+:")


class FlightRecorder(Reader):
    """Dumps that `TORCH_FR_BUFFER_SIZE` / `TORCH_NCCL_TRACE_BUFFER_SIZE` asks for: pickles (also without any entry) and
    JSON, of torch 2.2 and newer, under any file name; the rank stands in the name."""

    name = "Flight Recorder dump"
    certainty = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        if b'"traceEvents"' in head:  # a profiler's trace describes its process groups too
            return False
        pickled = head[:1] == b"\x80" and len(head) > 2
        text = head.lstrip()[:1] == b"{"
        return (pickled or text) and sum(key in head for key in KEYS) >= 2

    def read(self, path: Path) -> Iterator[Table]:
        with opened(path) as stream:
            first = stream.read(1)
        with opened(path) as stream:
            found = load_plain(stream, LARGEST) if first == b"\x80" else _json(stream.read(LARGEST + 1))
        if not isinstance(found, dict):
            raise Unreadable("holds no dictionary")
        entries = found.get("entries", [])
        if not isinstance(entries, list):
            raise Unreadable("field entries: is no list")
        status = _dict(found.get("pg_status"))
        groups = _groups(_dict(found.get("pg_config")), status)
        done = {group.name: group.last_completed for group in groups}
        read = []
        for number, entry in enumerate(entries):
            try:
                read.append(_entry(entry, done))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise Unreadable(f"entry {number}: cannot be understood ({type(error).__name__}: {error})") from error
        rank = found.get("rank")
        yield FlightDump(
            file=str(path),
            rank=rank if isinstance(rank, int) and rank >= 0 else file_rank(path.name),
            version=str(found.get("version", "")),
            entries=tuple(read),
            groups=groups,
        )


def _json(data: bytes) -> object:
    if len(data) > LARGEST:
        raise Unreadable(f"has more than {LARGEST:,} bytes, far more than a dump has")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is no whole JSON ({error})") from error


def _dict(value: object) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _groups(config: dict[str, Any], status: dict[str, Any]) -> tuple[FlightGroup, ...]:
    found = []
    for name in dict.fromkeys((*config, *status)):
        about, how_far = _dict(config.get(name)), _dict(status.get(name))
        found.append(
            FlightGroup(
                name,
                str(about.get("desc", "")),
                _ranks(about.get("ranks")),
                _number(how_far.get("last_enqueued_collective")),
                _number(how_far.get("last_completed_collective")),
            )
        )
    return tuple(found)


def _ranks(value: object) -> tuple[int, ...]:
    """Of `"[0, 1]"` or [0, 1]; both are written."""
    if isinstance(value, str):
        return tuple(int(text) for text in re.findall(r"\d+", value))
    return tuple(int(one) for one in value) if isinstance(value, (list, tuple)) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _entry(entry: dict[str, Any], done: dict[str, int]) -> FlightEntry:
    pair = bool(entry.get("is_p2p", False))
    group = entry.get("process_group")
    name = str(group[0]) if isinstance(group, (list, tuple)) and group else str(entry.get("pg_id", "0"))
    collective = entry.get("collective_seq_id", entry.get("seq_id", 0))
    sequence = int(entry.get("p2p_seq_id", collective) if pair else collective)
    operation = _BACKEND.sub("", str(entry.get("profiling_name", "")))
    finished = entry.get("state") == "completed" or bool(entry.get("retired", False))
    return FlightEntry(
        group=name,
        sequence=sequence,
        operation=operation,
        point_to_point=pair or operation.startswith(("send", "recv")),
        input_sizes=tuple(tuple(int(n) for n in sizes) for sizes in entry.get("input_sizes") or ()),
        dtypes=tuple(str(dtype) for dtype in entry.get("input_dtypes") or ()),
        finished=finished or (not pair and sequence <= done.get(name, -1)),
        created_ns=int(entry.get("time_created_ns") or 0),
        site=_site(entry.get("frames")),
    )


def _site(frames: object) -> str:
    for frame in frames if isinstance(frames, list) else ():
        file = str(_dict(frame).get("filename", ""))
        if file and not any(part in file for part in LIBRARY):
            return f"{file}:{_number(frame.get('line'))}:{frame.get('name', '')}"
    return ""
