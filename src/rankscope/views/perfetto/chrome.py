"""The older JSON format of Chrome, which more programs read: larger and slower, for whoever asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO

from rankscope.report.timeline.parts import ENDS, STARTS, Column, Marks, Part, Readings, Slices, Track

BLOCK = 8_192
"""Events that are put into words at once."""
BY_ITSELF = 1 << 23
"""Added to the id of a track that belongs to no process: the number of its own, above all that Linux gives."""


class ChromeWriter:
    """Writes parts as they come. A track that stands by itself becomes a process too, one below another a thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._first = True
        self._process: dict[int, int] = {}
        self._names: dict[int, str] = {}
        stream.write(b'{"displayTimeUnit":"ns","traceEvents":[')

    def write(self, part: Part) -> None:
        """One part. Raises OSError."""
        if isinstance(part, Track):
            self._put(self._track(part))
        elif isinstance(part, Slices):
            for first in range(0, len(part.start_ns), BLOCK):
                self._put(list(self._slices(part, first)))
        elif isinstance(part, Marks):
            for first in range(0, len(part.time_ns), BLOCK):
                self._put(list(self._marks(part, first)))
        else:
            self._put(self._readings(part))

    def finish(self) -> None:
        """Close the list. Raises OSError."""
        self._stream.write(b"\n]}\n")

    def _put(self, events: list[str]) -> None:
        if events:
            head = "\n" if self._first else ",\n"
            self._first = False
            self._stream.write((head + ",\n".join(events)).encode())

    def _track(self, track: Track) -> list[str]:
        pid = self._process.get(track.parent, BY_ITSELF + track.id)
        if track.process is not None:
            pid = track.process.pid
        self._process[track.id] = pid
        self._names[track.id] = track.name
        if track.unit is not None:
            return []
        whole = track.process is not None or not track.parent
        kind, tid = ("process", 0) if whole else ("thread", track.id)
        made = [
            _meta(pid, tid, f"{kind}_name", name=track.name),
            _meta(pid, tid, f"{kind}_sort_index", sort_index=track.order),
        ]
        if track.process is not None and track.process.labels:
            made.append(_meta(pid, tid, "process_labels", labels=", ".join(track.process.labels)))
        return made

    def _slices(self, part: Slices, first: int) -> Iterator[str]:
        rows = slice(first, first + BLOCK)
        where = self._where(part.track)
        heads = _heads(part, rows)
        starts, ends = part.start_ns[rows].tolist(), part.end_ns[rows].tolist()
        for (head, arguments), start, end in zip(heads, starts, ends, strict=True):
            yield f'{{"ph":"X",{head},"ts":{start / 1e3:.3f},"dur":{(end - start) / 1e3:.3f},{where}{arguments}}}'
        for flow in part.flows:
            for start, id, role in zip(starts, flow.id[rows].tolist(), flow.role[rows].tolist(), strict=True):
                if role:
                    kind = "s" if role == STARTS else "f" if role == ENDS else "t"
                    head = f'"ph":"{kind}","bp":"e","cat":"flow","name":"flow","id":{id}'
                    yield f'{{{head},"ts":{start / 1e3:.3f},{where}}}'

    def _marks(self, part: Marks, first: int) -> Iterator[str]:
        rows = slice(first, first + BLOCK)
        where = self._where(part.track)
        for (head, arguments), time in zip(_heads(part, rows), part.time_ns[rows].tolist(), strict=True):
            yield f'{{"ph":"i","s":"t",{head},"ts":{time / 1e3:.3f},{where}{arguments}}}'

    def _readings(self, part: Readings) -> list[str]:
        name = json.dumps(self._names[part.track])
        pid = self._process[part.track]
        return [
            f'{{"ph":"C","name":{name},"pid":{pid},"ts":{time / 1e3:.3f},"args":{{"value":{value!r}}}}}'
            for time, value in zip(part.time_ns.tolist(), part.value.tolist(), strict=True)
        ]

    def _where(self, track: int) -> str:
        return f'"pid":{self._process[track]},"tid":{track}'


def _meta(pid: int, tid: int, what: str, **arguments: object) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": arguments}, separators=(",", ":"))


def _heads(part: Slices | Marks, rows: slice) -> Iterator[tuple[str, str]]:
    """(name and category, arguments) of each row."""
    known: dict[int, str] = {}

    def quoted(at: int) -> str:
        found = known.get(at)
        if found is None:
            found = known[at] = json.dumps(part.names[at])
        return found

    arguments = _arguments(part.columns, rows, len(part.name[rows]))
    for name, category, text in zip(part.name[rows].tolist(), part.category[rows].tolist(), arguments, strict=True):
        yield f'"name":{quoted(name)},"cat":{quoted(category)}', text


def _arguments(columns: tuple[Column, ...], rows: slice, count: int) -> list[str]:
    pieces: list[list[str]] = [[] for _ in range(count)]
    for column in columns:
        key = json.dumps(column.name)
        values = column.values[rows].tolist()
        there = [True] * count if column.there is None else column.there[rows].tolist()
        texts = column.texts
        known: dict[int, str] = {}
        for mine, value, has in zip(pieces, values, there, strict=True):
            if not has:
                continue
            if texts is None:
                mine.append(f"{key}:{value!r}")
                continue
            found = known.get(value)
            if found is None:
                found = known[value] = f"{key}:{json.dumps(texts[value])}"
            mine.append(found)
    return [f',"args":{{{",".join(mine)}}}' if mine else "" for mine in pieces]
