"""How model, optimizer, schedule and modes are wired together, as far as parameters alone do not show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field

UNREGISTERED = 0
"""`OddPart.why`: kept where the model does not look for its modules (a list, a dictionary), and has gradients."""
CUT_BY_CHECKPOINT = 1
"""Ran under reentrant activation checkpointing, with gradients on and no input that needs one."""
FREEZE_WITHOUT_EFFECT = 2
"""Its class freezes parameters in `train()`, and none is frozen."""
LOADED = 3
"""Got its values from a state dict, or from a pre-trained model."""


@dataclass(frozen=True, slots=True)
class GradientReuse(Record):
    """What became of the gradients that an optimizer had used, until it stepped again."""

    code: ClassVar[int] = 85
    kind: ClassVar[str] = "gradient_reuse"
    name: str = field("name", "", "class of the optimizer", is_name=True, bits=16)
    site: int = field("a", "", "name id of the call-site of the first backward in between", bits=16)
    watched: int = field("b", "count", "gradients that were watched: its smallest ones", bits=16)
    reused: int = field("b", "count", "of these, that a backward added to as they were", shift=16, bits=16)
    optimizer: int = field("c", "", "number of the optimizer object in this process", bits=8)
    unread: int = field("c", "", "1: they lie on a device, whether they are zero is not known", shift=8, bits=1)


@dataclass(frozen=True, slots=True)
class OddPart(Record):
    """A part of a model that is not what its parameters say."""

    code: ClassVar[int] = 86
    kind: ClassVar[str] = "odd_part"
    name: str = field("name", "", "path of the part in its model", is_name=True, bits=16)
    elements: int = field("a", "count", "elements of its parameters that could learn")
    parameters: int = field("b", "count", "parameters of it that could learn", bits=32)
    held: int = field("b", "count", "of these, that an optimizer holds", shift=32, bits=31)
    model: int = field("c", "", "name id of the model", bits=16)
    why: int = field("c", "", "0: not registered, 1: cut by checkpointing, 2: freeze without effect, 3: loaded",
                     shift=16, bits=4)  # fmt: skip
    training: int = field("c", "", "1: it is in training mode", shift=20, bits=1)
    place: int = field("c", "", "name id of its class, or of the place of the code", shift=32, bits=16)


@dataclass(frozen=True, slots=True)
class Average(Record):
    """A copy of weights that is called an average, by its class or by the variable that holds it."""

    code: ClassVar[int] = 87
    kind: ClassVar[str] = "average"
    name: str = field("name", "", "variable that holds it", is_name=True, bits=16)
    tensors: int = field("a", "count", "tensors of it that were looked at")
    fingerprint: int = field("b", "", "of samples of these: equal where nothing has changed")
    class_name: int = field("c", "", "name id of its class", bits=16)
    waits: int = field("c", "count", "the largest of its settings of steps to begin after, or between updates",
                       shift=16, bits=32)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EvaluationPass(Record):
    """One call of a root module without gradients, of the few that are looked at."""

    code: ClassVar[int] = 88
    kind: ClassVar[str] = "evaluation_pass"
    name: str = field("name", "", "class and place of the module that drew random numbers, or nothing",
                      is_name=True, bits=16)  # fmt: skip
    site: int = field("a", "", "name id of the call-site", bits=16)
    number: int = field("a", "count", "passes without gradients of this model before", shift=32, bits=31)
    dropouts: int = field("b", "count", "dropout modules in training mode with a probability above 0", bits=16)
    batch_norms: int = field("b", "count", "modules in training mode that normalise by the batch", shift=16, bits=16)
    model: int = field("c", "", "name id of the model", bits=16)
    training: int = field("c", "", "1: the root module is in training mode", shift=16, bits=1)
    random: int = field("c", "", "1: random numbers were drawn", shift=17, bits=1)
    dropout_code: int = field("c", "", "1: a module in it calls a dropout function by itself", shift=18, bits=1)
    repeated: int = field("c", "count", "passes in a row, before this one, with the same input", shift=24, bits=8)


@dataclass(frozen=True, slots=True)
class SchedulerStat(Record):
    """How far a learning-rate schedule is, at an optimizer step of a sampled step."""

    code: ClassVar[int] = 89
    kind: ClassVar[str] = "scheduler_stat"
    name: str = field("name", "", "class of the schedule", is_name=True, bits=16)
    scheduled: int = field("a", "count", "steps of the schedule since its beginning", bits=32)
    stepped: int = field("a", "count", "steps of its optimizer since then", shift=32, bits=31)
    horizon: int = field("b", "count", "steps after which the schedule is over; 0: not known", bits=32)
    number: int = field("b", "", "number of the schedule in this process", shift=32, bits=16)
    optimizer: int = field("c", "", "number of the optimizer object in this process", bits=8)
    accelerated: int = field("c", "", "1: accelerate is in use, it steps once for each process", shift=8, bits=1)
