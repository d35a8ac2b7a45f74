"""What a training step is made of, as one rank saw it on its main thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field


@dataclass(frozen=True, slots=True)
class Step(Record):
    """One finished step: written at its end, begins at the end of the step before."""

    code: ClassVar[int] = 1
    kind: ClassVar[str] = "step"
    micro_batches: int = field("a", "count", "backward calls in the step")
    observed: int = field("b", "", "1: sources were on, as in every step", bits=1)
    explicit: int = field("b", "", "1: the user marked the step with rankscope.step()", shift=1, bits=1)
    inference: int = field("b", "", "1: a request or forward outside training", shift=2, bits=1)
    own_ns: int = field("c", "ns", "time rankscope itself took in this process since the step before; 0: not timed")


@dataclass(frozen=True, slots=True)
class Forward(Record):
    """One call of a root module (a module called by user code, not by another module)."""

    code: ClassVar[int] = 2
    kind: ClassVar[str] = "forward"
    name: str = field("name", "", "class of the module", is_name=True, bits=16)
    elements: int = field("a", "count", "elements of all tensor arguments")
    model: int = field("c", "", "name id of `Class#k`, one per module object", bits=16)
    shape: int = field("c", "", "name id of the argument shapes", shift=16, bits=16)
    training: int = field("c", "", "1: module.training", shift=32, bits=1)
    grad: int = field("c", "", "1: autograd was enabled", shift=33, bits=1)
    autocast: int = field("c", "", "1: autocast was enabled", shift=34, bits=1)
    compiled: int = field("c", "", "1: a torch.compile wrapper", shift=35, bits=1)
    trained: int = field("c", "", "1: the model has been through a forward with gradients", shift=36, bits=1)


@dataclass(frozen=True, slots=True)
class Backward(Record):
    """One call of torch.autograd.backward or grad."""

    code: ClassVar[int] = 3
    kind: ClassVar[str] = "backward"
    site: str = field("name", "", "call-site", is_name=True, bits=16)
    last_enter_ns: int = field("a", "ns", "when the last collective inside was enqueued; 0: none")
    collectives: int = field("c", "count", "collectives enqueued inside", bits=32)


@dataclass(frozen=True, slots=True)
class OptimizerStep(Record):
    """One call of an optimizer's step."""

    code: ClassVar[int] = 4
    kind: ClassVar[str] = "optimizer_step"
    name: str = field("name", "", "class of the optimizer", is_name=True, bits=16)
    optimizer: int = field("a", "", "number of the optimizer object in this process")
    lr: float = field("b", "", "learning rate of its first group; NaN: not known", is_float=True)


@dataclass(frozen=True, slots=True)
class Span(Record):
    """A phase of its own: checkpoint, logging, evaluation, transfer, or what the user names."""

    code: ClassVar[int] = 5
    kind: ClassVar[str] = "span"
    name: str = field("name", "", "phase", is_name=True, bits=16)
    site: int = field("a", "", "name id of the call-site", bits=16)
    detail: int = field("a", "", "name id of what was called", shift=16, bits=16)
    bytes: int = field("c", "bytes", "bytes written, where known")


@dataclass(frozen=True, slots=True)
class Module(Record):
    """One call of a module inside a root module, on the few steps that are recorded deeply."""

    code: ClassVar[int] = 6
    kind: ClassVar[str] = "module"
    name: str = field("name", "", "path of the module in its root", is_name=True, bits=16)
    numel: int = field("a", "count", "elements of its weight matrices; 0: none")
    full_precision: int = field("c", "", "1: a matrix product ran in full precision inside autocast", bits=1)
    autocast: int = field("c", "", "1: autocast was enabled around it", shift=1, bits=1)
    leaf: int = field("c", "", "1: called no other module", shift=2, bits=1)
    grad: int = field("c", "", "1: autograd was enabled", shift=3, bits=1)
    training: int = field("c", "", "1: module.training", shift=4, bits=1)
    class_name: int = field("c", "", "name id of `class|file:line` of its forward", shift=16, bits=16)


@dataclass(frozen=True, slots=True)
class Metric(Record):
    """One value given to rankscope.log, or read from the training."""

    code: ClassVar[int] = 7
    kind: ClassVar[str] = "metric"
    name: str = field("name", "", "metric", is_name=True, bits=16)
    value: float = field("a", "", "value", is_float=True)


@dataclass(frozen=True, slots=True)
class Subnormals(Record):
    """Share of subnormal numbers in a sample of a tensor."""

    code: ClassVar[int] = 8
    kind: ClassVar[str] = "subnormals"
    name: str = field("name", "", "parameter or module path", is_name=True, bits=16)
    subnormal: int = field("a", "count", "subnormal elements in the sample")
    sampled: int = field("b", "count", "elements in the sample")
    activation: int = field("c", "", "1: output of a module, 0: a parameter", bits=1)


@dataclass(frozen=True, slots=True)
class Call(Record):
    """One call of an API that matters for the order of things (no_sync, set_epoch, init functions, ...)."""

    code: ClassVar[int] = 9
    kind: ClassVar[str] = "call"
    name: str = field("name", "", "what was called", is_name=True, bits=16)
    site: int = field("a", "", "name id of the call-site", bits=16)
    count: int = field("b", "count", "calls that this record stands for")
    repeated_ns: int = field("c", "ns", "part of the duration that repeated calls on the same object")
