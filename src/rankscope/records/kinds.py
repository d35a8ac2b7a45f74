"""All kinds of records, by code."""

from __future__ import annotations

from rankscope.records import activations, batches, collective, host, loading, numerics, training
from rankscope.records.record import Record

KINDS: dict[int, type[Record]] = {
    cls.code: cls
    for module in (training, loading, collective, host, numerics, batches, activations)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Record) and cls is not Record
}
