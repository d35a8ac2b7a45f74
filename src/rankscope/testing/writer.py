"""Writes records as one process of a made-up run would: slots with interned names, stacks and a description."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.records.payload import NAME, PROCESS, STACK
from rankscope.records.process import Process
from rankscope.records.record import Record, Source, float_bits, sources, two_floats

Row = tuple[int, ...]
"""The values of one `ROW_FIELDS` row."""
Text = tuple[int, int, int, str]
"""A payload: process, kind, id, text."""

IN_FRONT = ("process", "time_ns", "duration_ns", "step")
"""Fields of every record, which `put` takes as arguments of their own."""


class Writer:
    """The records of one process. Fields that are name ids take the text itself and intern it.

    `files`: real paths in place of made-up ones in every text.
    """

    def __init__(self, process: Process, node: int = 0, files: Mapping[str, str] | None = None) -> None:
        self.process = process
        self.pid = process.pid
        self.rows: list[Row] = []
        self._node = node
        self._files = dict(files or {})
        self._names: dict[str, int] = {}
        self._stacks: dict[tuple[str, ...], int] = {}
        self._payloads: list[Text] = [(self.pid, PROCESS, 0, process.encode())]

    def name(self, text: str) -> int:
        """The id of a text; 0 for none."""
        if not text:
            return 0
        known = self._names.get(text)
        if known is None:
            shown = text
            for made_up, real in self._files.items():
                shown = shown.replace(made_up, real)
            known = self._names[text] = len(self._names) + 1
            self._payloads.append((self.pid, NAME, known, shown))
        return known

    def stack(self, frames: tuple[str, ...]) -> int:
        """The id of a stack given as `file:line:function`, outermost frame first."""
        known = self._stacks.get(frames)
        if known is None:
            ids = " ".join(str(self.name(frame)) for frame in reversed(frames))
            known = self._stacks[frames] = len(self._stacks) + 1
            self._payloads.append((self.pid, STACK, known, ids))
        return known

    def put(self, kind: type[Record], begin: int, end: int, step: int, **values: int | float | str) -> None:
        """One record. Fields that are not given are 0; an unknown field is a mistake of the caller."""
        words = {"name": 0, "a": 0, "b": 0, "c": 0}
        layout = _LAYOUTS.get(kind.code) or _layout(kind)
        for field, value in values.items():
            source = layout.get(field)
            if source is None:
                raise ValueError(f"{kind.__name__} has no field {field!r}; it has {', '.join(layout)}")
            number = self.name(value) if isinstance(value, str) else value
            if source.is_float and source.bits == 64:
                words[source.word] = float_bits(float(number))
            elif source.is_float:
                words[source.word] |= (two_floats(float(number), 0.0) & 0xFFFFFFFF) << source.shift
            else:
                words[source.word] |= _fit(kind, field, int(number), source) << source.shift
        words = {word: (value + (1 << 63)) % (1 << 64) - (1 << 63) for word, value in words.items()}
        commit = len(self.rows) + 1
        self.rows.append(
            (self.pid, 0, self._node, commit, begin, end - begin, kind.code, words["name"], step,
             words["a"], words["b"], words["c"], commit)
        )  # fmt: skip

    def payloads(self) -> list[Text]:
        """All payloads so far, oldest first."""
        return list(self._payloads)


_LAYOUTS: dict[int, dict[str, Source]] = {}


def _layout(kind: type[Record]) -> dict[str, Source]:
    """Field -> where it lies, of the fields that the caller gives; kept by kind."""
    found = {field: source for field, source in sources(kind).items() if field not in IN_FRONT}
    return _LAYOUTS.setdefault(kind.code, found)


def _fit(kind: type[Record], field: str, number: int, source: Source) -> int:
    """The number, where it fits the bits of its field; ValueError else, as the record of a real rank would be wrong."""
    if source.bits < 64 and not 0 <= number < 1 << source.bits:
        raise ValueError(f"{kind.__name__}.{field} has {source.bits} bits, {number} does not fit")
    return number
