"""Outputs of modules and what goes into loss functions, on the few steps that are looked at closely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field


@dataclass(frozen=True, slots=True)
class ActivationStat(Record):
    """A sample of what one leaf module (one that calls no other) gave: its first call of a step in each mode."""

    code: ClassVar[int] = 90
    kind: ClassVar[str] = "activation_stat"
    name: str = field("name", "", "path of the module in its model", is_name=True, bits=16)
    rms: float = field("a", "", "root mean square of the finite elements", is_float=True, bits=32)
    mean: float = field("a", "", "mean of the finite elements", is_float=True, shift=32, bits=32)
    least: float = field("b", "", "smallest element", is_float=True, bits=32)
    most: float = field("b", "", "largest element", is_float=True, shift=32, bits=32)
    model: int = field("c", "", "name id of the model", bits=16)
    zeros: int = field("c", "", "elements that are zero, in 255ths", shift=16, bits=8)
    saturated: int = field("c", "", "of a sigmoid or tanh, elements at its ends, in 255ths", shift=24, bits=8)
    finite: int = field("c", "", "1: all elements of the sample are finite", shift=32, bits=1)
    training: int = field("c", "", "1: the module was in training mode", shift=33, bits=1)
    grad: int = field("c", "", "1: autograd was enabled", shift=34, bits=1)
    bounded: int = field("c", "", "1: a sigmoid or tanh: `saturated` is known", shift=35, bits=1)
    class_name: int = field("c", "", "name id of its class", shift=40, bits=16)


@dataclass(frozen=True, slots=True)
class UnitStat(Record):
    """The units (features, channels) of the same output, each over all rows of the sample."""

    code: ClassVar[int] = 91
    kind: ClassVar[str] = "unit_stat"
    name: str = field("name", "", "path of the module in its model", is_name=True, bits=16)
    units: int = field("a", "count", "units", bits=32)
    rows: int = field("a", "count", "rows (samples, tokens, pixels) of each that were read", shift=32, bits=31)
    dead: int = field("b", "count", "units that are zero in every row", bits=32)
    off: int = field("b", "count", "units that are zero or negative in every row", shift=32, bits=31)
    model: int = field("c", "", "name id of the model", bits=16)
    lasting_dead: int = field("c", "", "share of units dead in this look and the one before, in 65535ths",
                              shift=16, bits=16)  # fmt: skip
    lasting_off: int = field("c", "", "the same of `off`", shift=32, bits=16)
    looks: int = field("c", "count", "looks that the two `lasting` fields stand for, at most 2", shift=48, bits=2)
    training: int = field("c", "", "1: the module was in training mode", shift=50, bits=1)


@dataclass(frozen=True, slots=True)
class PredictionStat(Record):
    """A sample of what a model gave to the program that called it."""

    code: ClassVar[int] = 92
    kind: ClassVar[str] = "prediction_stat"
    name: str = field("name", "", "name of the model", is_name=True, bits=16)
    least: float = field("a", "", "smallest element", is_float=True, bits=32)
    most: float = field("a", "", "largest element", is_float=True, shift=32, bits=32)
    entropy: float = field("b", "", "mean entropy of softmax over the last dimension as a share of the largest one; "
                           "NaN: there is none", is_float=True, bits=32)  # fmt: skip
    spread: float = field("b", "", "root mean square of the differences between rows, as a share of the size of all; "
                          "0: each row has the same prediction", is_float=True, shift=32, bits=32)  # fmt: skip
    units: int = field("c", "count", "size of its last dimension", bits=31)
    rows: int = field("c", "count", "rows of the sample", shift=31, bits=16)
    training: int = field("c", "", "1: the model was in training mode", shift=48, bits=1)
    grad: int = field("c", "", "1: autograd was enabled", shift=49, bits=1)
    finite: int = field("c", "", "1: all elements of the sample are finite", shift=50, bits=1)


@dataclass(frozen=True, slots=True)
class EvaluationLoss(Record):
    """The value of one call of a loss function of torch while autograd was off."""

    code: ClassVar[int] = 93
    kind: ClassVar[str] = "evaluation_loss"
    name: str = field("name", "", "call-site", is_name=True, bits=16)
    value: float = field("a", "", "the loss, of one number", is_float=True)
    function: int = field("c", "", "name id of the function", bits=16)
