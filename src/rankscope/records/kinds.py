"""All kinds of records, by code."""

from __future__ import annotations

from rankscope.records import (
    activations,
    batch_contents,
    batches,
    collective,
    gradient_calls,
    host,
    loading,
    not_finite,
    numerics,
    training,
    wiring,
)
from rankscope.records.record import Record

_MODULES = (
    training, loading, collective, host, numerics, batches, batch_contents, activations, gradient_calls, wiring,
    not_finite,
)  # fmt: skip
KINDS: dict[int, type[Record]] = {
    cls.code: cls
    for module in _MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Record) and cls is not Record
}
