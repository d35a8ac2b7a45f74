"""Statistics of tensors, taken on the few steps that are sampled: the same steps on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field

BEFORE_OPTIMIZER = 0
"""`GradientStat.moment`: as the optimizer got it, after clipping, unscaling and whatever else the program does."""
AFTER_BACKWARD = 1
"""As the last backward before the optimizer left it (already averaged, where DDP did that)."""


@dataclass(frozen=True, slots=True)
class Sampling(Record):
    """One sampled step: what taking its statistics took (`duration_ns`), and of how many tensors."""

    code: ClassVar[int] = 60
    kind: ClassVar[str] = "sampling"
    tensors: int = field("a", "count", "tensors that were looked at")
    left_out: int = field("b", "count", "parameters that were not: too many, or of a kind that cannot be read")


@dataclass(frozen=True, slots=True)
class LossValue(Record):
    """The value that backward was called on, of each call on one number."""

    code: ClassVar[int] = 61
    kind: ClassVar[str] = "loss_value"
    name: str = field("name", "", "call-site of backward", is_name=True, bits=16)
    value: float = field("a", "", "the loss, as scaled by the program", is_float=True)
    micro_batch: int = field("c", "count", "backward calls of this step before", bits=16)


@dataclass(frozen=True, slots=True)
class GradientStat(Record):
    """The gradient of one parameter on a sampled step."""

    code: ClassVar[int] = 62
    kind: ClassVar[str] = "gradient_stat"
    name: str = field("name", "", "path of the parameter in its model", is_name=True, bits=16)
    norm: float = field("a", "", "L2 norm of the whole gradient; NaN: not taken", is_float=True, bits=32)
    rms: float = field("a", "", "root mean square of its sample", is_float=True, shift=32, bits=32)
    fingerprint: int = field("b", "", "of the sample's bits: equal for equal gradients")
    model: int = field("c", "", "name id of the model", bits=16)
    moment: int = field("c", "", "0: as the optimizer got it, 1: as backward left it", shift=16, bits=2)
    finite: int = field("c", "", "1: sample and norm are finite", shift=18, bits=1)
    zeros: int = field("c", "", "zeros of the sample, in 255ths", shift=24, bits=8)


@dataclass(frozen=True, slots=True)
class GradientNoise(Record):
    """What the reduction of one backward made of this rank's gradients, in a sample of their elements."""

    code: ClassVar[int] = 66
    kind: ClassVar[str] = "gradient_noise"
    local: float = field("a", "", "mean square before: of this rank, as scaled for it", is_float=True, bits=32)
    averaged: float = field("a", "", "mean square afterwards: over all ranks", is_float=True, shift=32, bits=32)
    elements: int = field("b", "count", "elements that were read")
    buckets: int = field("c", "count", "reductions that they were read of", bits=16)


@dataclass(frozen=True, slots=True)
class WeightStat(Record):
    """One parameter at the end of a sampled step, and how that step changed it."""

    code: ClassVar[int] = 63
    kind: ClassVar[str] = "weight_stat"
    name: str = field("name", "", "path of the parameter in its model", is_name=True, bits=16)
    rms: float = field("a", "", "root mean square of its sample before the step", is_float=True, bits=32)
    update: float = field("a", "", "root mean square of the sample's change", is_float=True, shift=32, bits=32)
    fingerprint: int = field("b", "", "of the sample's bits after the step: equal for equal parameters")
    model: int = field("c", "", "name id of the model", bits=16)
    changed: int = field("c", "", "elements of the sample that changed, in 255ths (255: all)", shift=16, bits=8)
    zeros: int = field("c", "", "zeros of the sample, in 255ths", shift=24, bits=8)
    finite: int = field("c", "", "1: the sample is finite", shift=32, bits=1)
    gradient: int = field("c", "", "1: it had a gradient when the optimizer stepped", shift=33, bits=1)
    held: int = field("c", "", "1: an optimizer that stepped holds it", shift=34, bits=1)
    compared: int = field("c", "", "1: `rms` and `update` are known; 0: no look before the step", shift=35, bits=1)


@dataclass(frozen=True, slots=True)
class BufferStat(Record):
    """One floating buffer of a model (running statistics, ...) at the end of a sampled step."""

    code: ClassVar[int] = 64
    kind: ClassVar[str] = "buffer_stat"
    name: str = field("name", "", "path of the buffer in its model", is_name=True, bits=16)
    rms: float = field("a", "", "root mean square of its sample", is_float=True, bits=32)
    fingerprint: int = field("b", "", "of the sample's bits: equal for equal buffers")
    model: int = field("c", "", "name id of the model", bits=16)
