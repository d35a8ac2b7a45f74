"""Statistics of tensors by name over ranks and sampled steps: gradients, parameters, buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Rows, column
from rankscope.records.inventory import Inventory, Model, Parameter
from rankscope.records.numerics import AFTER_BACKWARD, BEFORE_OPTIMIZER, BufferStat, GradientStat, WeightStat
from rankscope.records.record import Record, sources

Ints = NDArray[np.int64]
Key = tuple[str, str]
"""(model, path in it)."""


@dataclass(frozen=True, slots=True)
class Series:
    """One tensor: what was seen of it at the sampled steps that all ranks with this tensor have in common."""

    model: str
    path: str
    steps: Ints
    """[k] sampled steps, rising."""
    positions: tuple[int, ...]
    """[r] ranks that have it."""
    values: Mapping[str, NDArray[Any]]
    """Field of the record -> [r, k]."""

    def __getitem__(self, field: str) -> NDArray[Any]:
        return self.values[field]

    def of(self, position: int, field: str) -> NDArray[Any]:
        """[k] values of one rank."""
        found: NDArray[Any] = self.values[field][self.positions.index(position)]
        return found

    def where(self, mask: NDArray[np.bool_]) -> Series:
        """Only some of the steps."""
        return replace(self, steps=self.steps[mask], values={k: v[:, mask] for k, v in self.values.items()})

    @property
    def equal(self) -> NDArray[np.bool_]:
        """[k] whether the fingerprints of all ranks are equal."""
        prints = self.values["fingerprint"]
        return np.asarray((prints == prints[:1]).all(axis=0))


def gradients(facts: Facts) -> dict[Key, Series]:
    """Gradients as the optimizer got them: `norm`, `rms`, `fingerprint`, `finite`, `zeros`."""
    return facts.once(_gradients, BEFORE_OPTIMIZER)


def raw_gradients(facts: Facts) -> dict[Key, Series]:
    """Gradients as the last backward left them, before the program clipped, unscaled or reduced them: `rms`,
    `fingerprint`, `finite`, `zeros`; no `norm`."""
    return facts.once(_gradients, AFTER_BACKWARD)


def weights(facts: Facts) -> dict[Key, Series]:
    """Parameters at the end of sampled steps: `rms` (before), `update`, `fingerprint`, `changed`, `zeros`, `finite`,
    `gradient`, `held`, `compared`."""
    return facts.once(_weights)


def buffers(facts: Facts) -> dict[Key, Series]:
    """Floating buffers at the end of sampled steps: `rms`, `fingerprint`."""
    return facts.once(_buffers)


def inventory(facts: Facts, position: int) -> Inventory | None:
    """The newest inventory of a rank; None where none was written."""
    all_of = facts.tables.inventories.get(facts.ranks[position].pid, ())
    return all_of[-1] if all_of else None


def parameters(facts: Facts, position: int) -> Iterator[tuple[Model, Parameter]]:
    """Every parameter in a rank's newest inventory, with its model."""
    found = inventory(facts, position)
    for model in found.models if found is not None else ():
        for parameter in model.parameters:
            yield model, parameter


def _gradients(facts: Facts, moment: int) -> dict[Key, Series]:
    return _series(facts, GradientStat, moment)


def _weights(facts: Facts) -> dict[Key, Series]:
    return _series(facts, WeightStat)


def _buffers(facts: Facts) -> dict[Key, Series]:
    return _series(facts, BufferStat)


def _series(facts: Facts, kind: type[Record], moment: int | None = None) -> dict[Key, Series]:
    by_key: dict[Key, dict[int, Rows]] = {}
    for position in range(facts.size):
        rows = facts.rows(kind, position, window=False)
        if moment is not None:
            rows = rows[column(rows, kind, "moment") == moment]
        for key, mine in _by_name(facts, kind, position, rows):
            by_key.setdefault(key, {})[position] = mine
    fields = _fields(kind)
    return {key: _joined(kind, fields, key, ranks) for key, ranks in by_key.items()}


def _by_name(facts: Facts, kind: type[Record], position: int, rows: Rows) -> Iterator[tuple[Key, Rows]]:
    """A rank's rows of each tensor, one a step (the last), by step."""
    if not len(rows):
        return
    pid = facts.ranks[position].pid
    ids = column(rows, kind, "model") << 16 | rows["name"].astype(np.int64)
    order = np.lexsort((rows["commit"], rows["step"], ids))
    rows, ids = rows[order], ids[order]
    last = np.ones(len(rows), bool)
    last[:-1] = (ids[1:] != ids[:-1]) | (rows["step"][1:] != rows["step"][:-1])
    rows, ids = rows[last], ids[last]
    known, starts = np.unique(ids, return_index=True)
    for id, start, end in zip(known.tolist(), starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        yield (facts.tables.name(pid, id >> 16), facts.tables.name(pid, id & 0xFFFF)), rows[start:end]


def _joined(kind: type[Record], fields: tuple[str, ...], key: Key, ranks: Mapping[int, Rows]) -> Series:
    positions = tuple(sorted(ranks))
    common = ranks[positions[0]]["step"]
    for position in positions[1:]:
        common = np.intersect1d(common, ranks[position]["step"])
    kept = [ranks[p][np.isin(ranks[p]["step"], common)] for p in positions]
    values = {field: np.array([column(rows, kind, field) for rows in kept]) for field in fields}
    return Series(*key, common.astype(np.int64), positions, values)


def _fields(kind: type[Record]) -> tuple[str, ...]:
    front = ("process", "time_ns", "duration_ns", "step", "name", "model", "moment")
    return tuple(field for field in sources(kind) if field not in front)
