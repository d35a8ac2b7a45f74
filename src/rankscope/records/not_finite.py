"""Values that are no finite numbers any more, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field

BATCH, NOTHING_TO_LEARN, OPERATION, GRADIENT, PARAMETER, UNKNOWN = range(6)
"""`NotFinite.origin`: a batch had such values; a batch had no targets, so that a mean over nothing was taken; an
operation made them of finite ones; the loss is finite, its gradient is not; parameters were such already, since the
step before; nothing of these is known."""


@dataclass(frozen=True, slots=True)
class NotFinite(Record):
    """A loss that is not finite, as backward was called on it, and its origin in the graph behind it; or, on a sampled
    step, gradients that are not finite after backward."""

    code: ClassVar[int] = 95
    kind: ClassVar[str] = "not_finite"
    name: str = field("name", "", "operation, or key of the tensor in the batch", is_name=True, bits=16)
    low: float = field("a", "", "smallest finite value that went in; NaN: not known", is_float=True, bits=32)
    high: float = field("a", "", "largest finite value that went in", is_float=True, shift=32, bits=32)
    module: int = field("b", "", "name id of the parameter before it, or of the first that is not finite", bits=16)
    site: int = field("b", "", "name id of the call-site of backward", shift=16, bits=16)
    detail: int = field("b", "", "name id of what is odd about its inputs", shift=32, bits=16)
    origin: int = field("c", "", "0 batch, 1 no targets, 2 operation, 3 gradient, 4 parameters, 5 unknown", bits=4)
    ordinal: int = field("c", "count", "batches of the pass before, of a DataLoader's batch", shift=4, bits=24)
    affected: int = field("c", "count", "parameters that are not finite", shift=28, bits=16)
    parameters: int = field("c", "count", "parameters of the models", shift=44, bits=16)
    loaded: int = field("c", "", "1: `ordinal` is known", shift=60, bits=1)
