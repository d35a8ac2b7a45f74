"""Cuts a torch_trace log into records: a glog header with one line of JSON, then payload lines behind a tab."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

HEADER: Final = re.compile(
    rb"^(?:\[(?:rank)?(\d+)\]:\s?)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ "
    rb"[^\]{]{1,500}\](?: ?\[[^\]{]{0,200}\])*\s*(?=\{)"
)
"""What stands before the JSON: `V0804 12:34:12.816000 1142857 torch/_dynamo/utils.py:1931] `, perhaps with a rank
before it, and a compile id behind it."""
ANY_HEADER: Final = re.compile(rb"^(?:\[(?:rank)?\d+\]:\s?)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ")
"""The same of a line whose rest is damaged."""
LONGEST: Final = 16 << 20
"""Bytes of a line: the largest header holds torch's whole configuration, in 60 kB."""
MOST: Final = 64 << 20
"""Bytes of a payload that is kept."""
SKIPPED: Final = (b'{"describe_', b'{"dynamo_cpp_guards_str', b'{"dynamo_guards')
"""Records of which nothing is used, and of which there are many."""
RANK: Final = re.compile(rb'"rank": ?(\d{1,7})\b')


@dataclass(slots=True)
class Record:
    """One record; its payload is filled while the next lines are read."""

    line: int
    rank: int | None
    data: dict[str, Any]
    payload: list[bytes] = field(default_factory=list)

    @property
    def text(self) -> str:
        return b"\n".join(self.payload).decode("utf-8", "replace")

    def json(self) -> object:
        """Raises ValueError where the payload is none."""
        return json.loads(self.text)


@dataclass(slots=True)
class Damage:
    """What could not be read."""

    count: int = 0
    first: int | None = None

    def at(self, line: int) -> None:
        self.count += 1
        self.first = line if self.first is None else min(self.first, line)


def records(stream: BinaryIO, damage: Damage) -> Iterator[Record]:
    """The records, each with its whole payload. What is no record, and is no payload of one, is counted as damage once
    where it follows a header that is damaged, and passed over otherwise: other output may be mixed in."""
    current: Record | None = None
    size, number = 0, 0
    whole = True  # the last line read ended with a line feed: what follows begins a line
    while line := stream.readline(LONGEST):
        begins, whole = whole, line.endswith(b"\n")
        if not begins:
            continue
        number += 1
        if line[:1] == b"\t":
            size += len(line)
            if current is not None and size <= MOST:
                current.payload.append(line[1:].rstrip(b"\r\n"))
            continue
        found = HEADER.match(line)
        if found is None and ANY_HEADER.match(line) is None:
            continue
        if current is not None:
            yield current
        current, size = None, 0
        if found is None:
            damage.at(number)
            continue
        text = line[found.end() :]
        rank = int(found[1]) if found[1] is not None else None
        if text.startswith(SKIPPED):
            if rank is None and (said := RANK.search(text)) is not None:
                rank = int(said[1])
            current = Record(number, rank, {})
            size = MOST + 1
            continue
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            damage.at(number)
            continue
        if not isinstance(data, dict):
            damage.at(number)
            continue
        own = data.get("rank")
        current = Record(number, own if type(own) is int and own >= 0 else rank, data)
    if current is not None:
        yield current
