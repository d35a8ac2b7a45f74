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
BARE_KEYS: Final = (b"profiling_name", b"seq_id", b"input_sizes")
"""Of torch 2.2, which writes the entries without anything around them."""
MOST_ENTRIES: Final = 500_000
"""The ring buffer has 2,000 unless asked for more."""
MOST_RANKS: Final = 1_000_000
MOST_TENSORS, MOST_DIMENSIONS, MOST_FRAMES = 256, 16, 200
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
        bare = pickled and all(key in head for key in BARE_KEYS)
        return bare or ((pickled or text) and sum(key in head for key in KEYS) >= 2)

    def read(self, path: Path) -> Iterator[Table]:
        with opened(path) as stream:
            first = stream.read(1)
        with opened(path) as stream:
            found = load_plain(stream, LARGEST) if first == b"\x80" else _json(stream.read(LARGEST + 1))
        if isinstance(found, list) and found and all(isinstance(entry, dict) for entry in found):
            found = {"entries": found}
        if not isinstance(found, dict):
            raise Unreadable("holds no dictionary")
        entries = found.get("entries", [])
        if not isinstance(entries, list):
            raise Unreadable("field entries: is no list")
        if len(entries) > MOST_ENTRIES:
            raise Unreadable(f"has {len(entries):,} entries, far more than a dump has")
        said = found.get("rank")
        rank = said if type(said) is int and said >= 0 else file_rank(str(path))
        rank = rank if rank is not None and rank < MOST_RANKS else None
        config = _dict(found.get("pg_config"))
        groups = _groups(config, _by_name(_dict(found.get("pg_status")), config, entries))
        # The numbers of a group's status are those of its last operation, which may be a send or receive.
        pairs = {_group(entry, rank) for entry in entries if isinstance(entry, dict) and entry.get("is_p2p")}
        done = {group.name: group.last_completed for group in groups if group.name not in pairs}
        read = []
        for number, entry in enumerate(entries):
            try:
                read.append(_entry(entry, done, rank))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
                raise Unreadable(f"entry {number}: cannot be understood ({type(error).__name__}: {error})") from error
        yield FlightDump(
            file=str(path),
            rank=rank,
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


def _by_name(status: dict[str, Any], config: dict[str, Any], entries: list[Any]) -> dict[str, Any]:
    """The status of groups by their names. It is written by `pg_id`, which counts the groups of this process alone,
    while names count those of all: group 5 of a process may be called 37."""
    known: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, dict) and "pg_id" in entry and entry.get("process_group"):
            known[str(entry["pg_id"])] = _group(entry, None)
    if len(status) == len(config) and all(key.isdecimal() and len(key) < 10 for key in (*status, *config)):
        # Both count in the order in which groups were made; of an empty dump nothing else tells.
        ordered = dict(zip(sorted(status, key=int), sorted(config, key=int), strict=True))
        if all(ordered.get(number) == name for number, name in known.items()):
            known = ordered
    if "0" in config:
        known.setdefault("0", "0")
    return {known[number]: about for number, about in status.items() if number in known}


def _group(entry: dict[str, Any], rank: int | None) -> str:
    """The group's name. Before torch 2.4 there is only a number, which tells nothing to other ranks but for 0."""
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return str(group[0])
    number = str(entry.get("pg_id", "0"))
    return number if number == "0" or rank is None else f"{number} of rank {rank}"


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
        value = [int(text) for text in re.findall(r"(?<!\d)\d{1,7}(?!\d)", value)]
    numbers = value[:MOST_RANKS] if isinstance(value, (list, tuple)) else ()
    return tuple(one for one in numbers if type(one) is int and 0 <= one < MOST_RANKS)


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _entry(entry: dict[str, Any], done: dict[str, int], rank: int | None) -> FlightEntry:
    pair = bool(entry.get("is_p2p", False))
    name = _group(entry, rank)
    collective = entry.get("collective_seq_id", entry.get("seq_id", 0))
    sequence = int(entry.get("p2p_seq_id", collective) if pair else collective)
    operation = _BACKEND.sub("", str(entry.get("profiling_name", "")))
    finished = entry.get("state") == "completed" or bool(entry.get("retired", False))
    return FlightEntry(
        group=name,
        sequence=sequence,
        operation=operation,
        point_to_point=pair or operation.startswith(("send", "recv")),
        input_sizes=tuple(
            tuple(int(n) for n in sizes[:MOST_DIMENSIONS]) for sizes in (entry.get("input_sizes") or ())[:MOST_TENSORS]
        ),
        dtypes=tuple(str(dtype)[:40] for dtype in (entry.get("input_dtypes") or ())[:MOST_TENSORS]),
        finished=finished or (not pair and sequence <= done.get(name, -1)),
        created_ns=int(entry.get("time_created_ns") or 0),
        site=_site(entry.get("frames")),
    )


def _site(frames: object) -> str:
    for frame in frames[:MOST_FRAMES] if isinstance(frames, list) else ():
        file = str(_dict(frame).get("filename", ""))
        if file and not any(part in file for part in LIBRARY):
            return f"{file}:{_number(frame.get('line'))}:{frame.get('name', '')}"
    return ""
