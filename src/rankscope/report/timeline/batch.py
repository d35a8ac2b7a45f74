"""Collects what is to be drawn on one track, from records of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rankscope.report.timeline.parts import Column, Floats, Flow, Ints, Marks, Mask, Slices

NONE = -1
"""A text that a row does not have."""
NO_NUMBER = int(np.iinfo(np.int64).min)
"""A whole number that a row does not have; of others it is NaN."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Rows that have the same arguments. Texts are positions in the batch's own list, `NONE` for none."""

    start_ns: Ints
    end_ns: Ints
    name: Ints
    category: Ints
    numbers: Mapping[str, Ints | Floats] = field(default_factory=dict)
    texts: Mapping[str, Ints] = field(default_factory=dict)
    flows: tuple[Flow, ...] = ()


class Batch:
    """Drafts, and the texts that they share."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._drafts: list[Draft] = []

    def text(self, text: str) -> int:
        """The position of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def same(self, text: str, count: int) -> Ints:
        """The same text for every row."""
        return np.full(count, self.text(text), np.int64)

    def texts(self, ids: Ints, of: Callable[[int], str]) -> Ints:
        """The text of each id; an empty one counts as none."""
        used, inverse = np.unique(ids, return_inverse=True)
        texts = [of(id) for id in used.tolist()]
        at = np.array([self.text(text) if text else NONE for text in texts], np.int64)
        return at[inverse] if len(at) else np.empty(0, np.int64)

    def add(self, draft: Draft) -> None:
        """More rows; none are left out again."""
        if len(draft.start_ns):
            self._drafts.append(draft)

    def __len__(self) -> int:
        return sum(len(draft.start_ns) for draft in self._drafts)

    def slices(self, track: int, origin_ns: int) -> Slices:
        """All rows as slices, in the order in which they came."""
        most = max((len(draft.flows) for draft in self._drafts), default=0)
        flows = tuple(self._flow(at) for at in range(most))
        return Slices(
            track, self._joined("start_ns") - origin_ns, self._joined("end_ns") - origin_ns, self._joined("name"),
            self._joined("category"), tuple(self._texts), self._columns(), flows,
        )  # fmt: skip

    def marks(self, track: int, origin_ns: int) -> Marks:
        """All rows as moments, by time."""
        time = self._joined("start_ns") - origin_ns
        order = np.argsort(time, kind="stable")
        columns = tuple(
            Column(c.name, c.values[order], c.texts, None if c.there is None else c.there[order])
            for c in self._columns()
        )
        name, category = self._joined("name")[order], self._joined("category")[order]
        return Marks(track, time[order], name, category, tuple(self._texts), columns)

    def _joined(self, name: str) -> Ints:
        parts = [getattr(draft, name) for draft in self._drafts]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _flow(self, at: int) -> Flow:
        ids, roles = [], []
        for draft in self._drafts:
            none = np.zeros(len(draft.start_ns), np.int64)
            flow = draft.flows[at] if at < len(draft.flows) else Flow(none, none.astype(np.int8))
            ids.append(flow.id)
            roles.append(flow.role)
        return Flow(np.concatenate(ids), np.concatenate(roles))

    def _columns(self) -> tuple[Column, ...]:
        texts = tuple(self._texts)
        made = []
        for name in dict.fromkeys(name for draft in self._drafts for name in (*draft.numbers, *draft.texts)):
            values, there = [], []
            is_text = any(name in draft.texts for draft in self._drafts)
            for draft in self._drafts:
                mine = draft.texts.get(name) if is_text else draft.numbers.get(name)
                count = len(draft.start_ns)
                if mine is None:
                    values.append(np.zeros(count, np.int64))
                    there.append(np.zeros(count, bool))
                else:
                    has = _known(mine, is_text)
                    values.append(np.where(has, mine, 0))
                    there.append(has)
            has = np.concatenate(there)
            column = np.concatenate(values)
            made.append(Column(name, column, texts if is_text else None, None if has.all() else has))
        return tuple(made)


def _known(values: Ints | Floats, is_text: bool) -> Mask:
    if is_text:
        return np.asarray(values >= 0)
    return np.isfinite(values) if values.dtype.kind == "f" else np.asarray(values != NO_NUMBER)
