"""A trace's events, a few megabytes at a time: what is held does not grow with the file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import msgspec

from rankscope.artefacts.kineto.events import decoder, lenient
from rankscope.artefacts.kineto.mending import mended
from rankscope.artefacts.reader import Unreadable

PIECE: Final = 4 << 20
LARGEST_EVENT: Final = 64 << 20
"""Bytes without an end of an event, or before the first one: a header of 10,000 process groups has a tenth of that."""
_SEARCHED: Final = 1 << 16
_AT_ONCE: Final = 1 << 18
"""Bytes that are lost before the place where a compressed file is damaged."""
_EVENTS: Final = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
# Between two events. Inside of a string it cannot stand: the quote at its end would have to be escaped.
_BETWEEN: Final = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)')
_BETWEEN_IN_TEXT: Final = re.compile(_BETWEEN.pattern.decode())
_LOOKED_AT: Final = 99
"""Events of a batch that show which kind of time stamps it has."""
_EXACT: Final = float(1 << 43)
"""µs from which a float no longer tells ns apart."""
_SCAN: Final = json.JSONDecoder(strict=False)


@dataclass(slots=True)
class Batch:
    """Events that came together."""

    events: list[Any]
    text: bytes
    """What they were read from."""
    dropped: int = 0


class Batches:
    """Iterate over it for the events; afterwards it knows the rest of the file.

    Raises `Unreadable` where there is no list of events at all. Damage after its start is no error: `trouble` says what
    and where, and the events around it are given.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: Any = stream
        self._rest = b""
        self._read = 0
        self._head = b""
        self._tail = b""
        self._exact = False
        self._damaged = False
        self.trouble = ""
        self._decoder = decoder(exact=False)

    def header(self) -> dict[str, Any]:
        """Everything that stands beside the events; empty where that is damaged."""
        for text in (self._head + b"]" + self._tail, self._head + b"]}"):
            try:
                found = json.loads(mended(text).decode("utf-8"), strict=False)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                return found
        return {}

    def __iter__(self) -> Iterator[Batch]:
        self._start()
        while True:
            data = self._more()
            if not data:
                break
            self._rest += data
            cut = self._cut()
            if cut:
                begin = self._read - len(self._rest)
                piece, between, self._rest = (
                    self._rest[: cut[0]], self._rest[cut[0] : cut[1]], self._rest[cut[1] :]
                )  # fmt: skip
                ended = yield from self._whole(piece, begin)
                if ended:
                    self._tail += between + self._rest
                    self._rest = b""
                    break
            elif len(self._rest) > LARGEST_EVENT:
                begin = self._read - len(self._rest)
                raise Unreadable(f"{len(self._rest):,} bytes from byte {begin:,} on hold no event")
        if self._tail:
            self._finish_tail()
        else:
            yield from self._last()

    def _more(self) -> bytes:
        """The next piece of the file, short where it ends or is damaged; what came before the damage is good."""
        parts: list[bytes] = []
        size = 0
        while size < PIECE and not self._damaged:
            try:
                data = self._stream.read1(min(_AT_ONCE, PIECE - size))
            except Unreadable as error:
                self.trouble, self._damaged = str(error), True
                break
            if not data:
                break
            parts.append(data)
            size += len(data)
        self._read += size
        return b"".join(parts)

    def _start(self) -> None:
        """Read up to the first event."""
        self._rest = self._more()
        if self._rest[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            self._stream = _Recoded(self._stream)
            self._rest = self._stream.recoded(self._rest)
        self._rest = self._rest.removeprefix(codecs.BOM_UTF8).lstrip()
        if self._rest.startswith(b"["):
            self._head, self._rest = b"[", self._rest[1:]
            return
        searched = 0
        while True:
            found = _EVENTS.search(self._rest, searched)
            if found:
                self._head, self._rest = self._rest[: found.end()], self._rest[found.end() :]
                return
            searched = max(0, len(self._rest) - 64)
            data = self._more()
            if not data or len(self._rest) > LARGEST_EVENT:
                raise Unreadable(self.trouble or f'has no "traceEvents" in its first {len(self._rest):,} bytes')
            self._rest += data

    def _cut(self) -> tuple[int, int] | None:
        """(end of an event, start of the one after it), as far back as there is one."""
        for first in (max(0, len(self._rest) - _SEARCHED), 0):
            found = None
            for found in _BETWEEN.finditer(self._rest, first):  # noqa: B007  the last one is wanted
                pass
            if found:
                return found.start() + 1, found.end()
            if first == 0:
                break
        return None

    def _whole(self, piece: bytes, begin: int) -> Generator[Batch, None, bool]:
        """The events of a piece that ends with an event; returns whether the list ended within it."""
        for attempt in range(2):
            text = mended(piece) if attempt else piece
            try:
                yield self._decoded(text)
                return False
            except msgspec.ValidationError:
                yield self._one_by_one(text)
                return False
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
        return (yield from self._walked(piece, begin))

    def _decoded(self, text: bytes) -> Batch:
        listed = b"[" + text + b"]"
        events = self._decoder.decode(listed)
        if not self._exact and any(
            (ts := getattr(event, "ts", None)) and ts > _EXACT and ts % 1 for event in events[:_LOOKED_AT]
        ):
            self._exact, self._decoder = True, decoder(exact=True)
            events = self._decoder.decode(listed)
        return Batch(events, text)

    def _one_by_one(self, text: bytes) -> Batch:
        """Where an event has fields of other types than any version gives it: that one is left out."""
        raw = msgspec.json.decode(b"[" + text + b"]")
        return self._kept(raw, text)

    def _kept(self, raw: list[Any], text: bytes) -> Batch:
        events = [lenient(value, self._exact) for value in raw]
        kept = [event for event in events if event is not None]
        wanted = sum(1 for value in raw if not isinstance(value, dict) or value.get("ph") in ("X", "i", "M", None))
        return Batch(kept, text, max(0, wanted - len(kept)))

    def _walked(self, piece: bytes, begin: int) -> Generator[Batch, None, bool]:
        """Event by event where a piece as a whole is no JSON: the list ends within it, or it is damaged."""
        text = mended(piece).decode("utf-8")
        found: list[str] = []
        at = dropped = 0
        while True:
            at = _after_space(text, at)
            if at >= len(text):
                break
            if text[at] == "]":
                yield self._batch(found, dropped)
                self._tail = text[at + 1 :].encode("utf-8")
                return True
            try:
                _, end = _SCAN.raw_decode(text, at)
                found.append(text[at:end])
                at = end
            except (ValueError, RecursionError):
                dropped += 1
                self.trouble = self.trouble or f"is damaged near byte {begin + at:,}"
                between = _BETWEEN_IN_TEXT.search(text, at)
                if between is None:
                    break
                at = between.end()
        yield self._batch(found, dropped)
        return False

    def _batch(self, found: list[str], dropped: int) -> Batch:
        text = ",".join(found).encode("utf-8", "replace")
        try:
            batch = self._decoded(text)
        except msgspec.ValidationError:
            batch = self._one_by_one(text)
        except (msgspec.DecodeError, RecursionError):  # line breaks within a string, which only `_SCAN` takes
            batch = self._kept([_SCAN.decode(one) for one in found], text)
        batch.dropped += dropped
        return batch

    def _last(self) -> Iterator[Batch]:
        """What is left at the end of the file: an event, the end of the list, the rest of the header."""
        ended = yield from self._walked(self._rest, self._read - len(self._rest))
        self._rest = b""
        if ended:
            self._finish_tail()
        elif not self.trouble or self.trouble.startswith("is damaged near"):
            self.trouble = f"ends in the middle of its events, at byte {self._read:,}"

    def _finish_tail(self) -> None:
        while len(self._tail) <= LARGEST_EVENT:
            data = self._more()
            if not data:
                return
            self._tail += data
        self._tail = b"}"  # not worth holding; what was needed stood before the events, or is not known


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


class _Recoded:
    """UTF-16, as shells of Windows redirect into files, as UTF-8."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def recoded(self, data: bytes) -> bytes:
        return self._decoder.decode(data).encode("utf-8", "replace")

    def read1(self, size: int) -> bytes:
        data = self._stream.read(size)
        return self.recoded(data) if data else b""
