"""What a program does to its gradients between backward and optimizer, and how its models are wrapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field

OUTSIDE_CLIP = 0
"""`GradientSet.what`: gradients that an optimizer used and that no clipping of this step had covered."""
NOT_FINITE = 1
"""`GradientSet.what`: gradients that were infinite or NaN after a backward."""
SUMMED_TWICE = 2
"""`GradientSet.what`: gradients that go through an operation that sums over ranks in forward and in backward."""


@dataclass(frozen=True, slots=True)
class GradientClip(Record):
    """One call of `clip_grad_norm_`, `clip_grad_value_` or `clip_grads_with_norm_`."""

    code: ClassVar[int] = 80
    kind: ClassVar[str] = "gradient_clip"
    name: str = field("name", "", "function", is_name=True, bits=16)
    limit: float = field("a", "", "largest norm or value that it leaves", is_float=True, bits=32)
    norm: float = field("a", "", "L2 norm that it found; NaN: not known without waiting", is_float=True, shift=32,
                        bits=32)  # fmt: skip
    scale: float = field("b", "", "loss scale still in the gradients, of a GradScaler; 1: none; NaN: not known",
                         is_float=True, bits=32)  # fmt: skip
    given: int = field("b", "count", "parameters with a gradient it was given; 0: not counted", shift=32, bits=31)
    site: int = field("c", "", "name id of the call-site", bits=16)
    scaled: int = field("c", "", "1: a GradScaler's scale was still in the gradients", shift=16, bits=1)


@dataclass(frozen=True, slots=True)
class ScalerStep(Record):
    """One call of `GradScaler.step`: an optimizer step, or one that was left out."""

    code: ClassVar[int] = 81
    kind: ClassVar[str] = "scaler_step"
    name: str = field("name", "", "class of the optimizer", is_name=True, bits=16)
    scale: float = field("a", "", "loss scale; NaN: not known without waiting", is_float=True)
    site: int = field("c", "", "name id of the call-site", bits=16)
    optimizer: int = field("c", "", "number of the optimizer object in this process", shift=16, bits=8)
    skipped: int = field("c", "", "1: gradients were not finite, nothing was updated", shift=24, bits=1)
    unscaled: int = field("c", "", "1: the program had called unscale_ before", shift=25, bits=1)


@dataclass(frozen=True, slots=True)
class LossFactor(Record):
    """What a loss was multiplied with just before backward: the trailing `* number` and `/ number`."""

    code: ClassVar[int] = 82
    kind: ClassVar[str] = "loss_factor"
    name: str = field("name", "", "call-site of backward", is_name=True, bits=16)
    factor: float = field("a", "", "product of them; 1: none", is_float=True)
    micro_batch: int = field("c", "count", "backward calls of this step before", bits=16)


@dataclass(frozen=True, slots=True)
class Wrapping(Record):
    """A DistributedDataParallel on a sampled step, just before an optimizer steps."""

    code: ClassVar[int] = 83
    kind: ClassVar[str] = "wrapping"
    name: str = field("name", "", "the model inside, as in `Forward.model`", is_name=True, bits=16)
    parameters: int = field("a", "count", "parameters of the model that are trained", bits=31)
    unknown: int = field("a", "count", "of them, those that the wrapper has never seen", shift=31, bits=31)
    members: int = field("b", "", "name id of the ranks of its process group: `0,1`", bits=16)
    through: int = field("b", "count", "forwards with gradient through the wrapper in this step", shift=16, bits=12)
    past: int = field("b", "count", "forwards with gradient of the model or a part of it past the wrapper", shift=28,
                      bits=12)  # fmt: skip
    past_site: int = field("b", "", "name id of the line of the last one of these", shift=40, bits=16)
    names: int = field("c", "", "name id of the paths of unknown parameters", bits=16)
    broadcast_buffers: int = field("c", "", "1: it copies buffers from its first rank", shift=16, bits=1)
    synchronises: int = field("c", "", "1: not inside no_sync", shift=17, bits=1)
    ignored: int = field("c", "", "1: it was told to ignore parameters", shift=18, bits=1)


@dataclass(frozen=True, slots=True)
class GradientSet(Record):
    """Some gradients of a step that have something in common (`what`)."""

    code: ClassVar[int] = 84
    kind: ClassVar[str] = "gradient_set"
    name: str = field("name", "", "paths of the first of them, separated by spaces", is_name=True, bits=16)
    norm: float = field("a", "", "L2 norm of them all; NaN: not known", is_float=True, bits=32)
    rest: float = field("a", "", "L2 norm of the others, of the same optimizer or of all", is_float=True, shift=32,
                        bits=32)  # fmt: skip
    count: int = field("b", "count", "how many they are", bits=31)
    of: int = field("b", "count", "how many gradients there are", shift=31, bits=31)
    what: int = field("c", "", "0: outside of clipping, 1: not finite, 2: summed over ranks in both passes", bits=2)
    optimizer: int = field("c", "", "number of the optimizer; 0: any", shift=2, bits=8)
    micro_batch: int = field("c", "count", "backward calls of this step before", shift=10, bits=16)
    last: int = field("c", "", "1: the last parameter of the model is among them", shift=26, bits=1)
