"""What is in the batches, what goes into loss functions, and indices that are beyond their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field

FROM_LOADER, INTO_MODEL, INTO_LAYER = 0, 1, 2
"""`BatchTensor.origin`: as the DataLoader gave it; an argument of a model that the program called; the input of the
first layer with weights that ran in that call."""
UNKNOWN, PLAIN, PROBABILITIES, LOG_PROBABILITIES = 0, 1, 2, 3
"""`LossCall.rows`: what the rows over the classes are."""
SAME, GROWN, ONE_FOR_MANY = 0, 1, 2
"""`LossCall.broadcast`: one shape; both were expanded, [N, 1] and [N] to [N, N]; one prediction for many targets."""


@dataclass(frozen=True, slots=True)
class BatchTensor(Record):
    """A sample of one tensor of a batch. Tensors of one batch have the same time."""

    code: ClassVar[int] = 75
    kind: ClassVar[str] = "batch_tensor"
    name: str = field("name", "", "where it is in the batch: `batch['image']`; of a layer, its path",
                      is_name=True, bits=16)  # fmt: skip
    mean: float = field("a", "", "mean of the finite elements", is_float=True, bits=32)
    std: float = field("a", "", "their standard deviation", is_float=True, shift=32, bits=32)
    least: float = field("b", "", "smallest finite element", is_float=True, bits=32)
    most: float = field("b", "", "largest finite element", is_float=True, shift=32, bits=32)
    source: int = field("c", "", "name id of the dataset's class or of the model", bits=16)
    shape: int = field("c", "", "name id of type and shape: `float32[32, 3, 8, 8]`", shift=16, bits=16)
    loader: int = field("c", "", "number of the DataLoader object in this process; 0: not from one", shift=32, bits=8)
    non_finite: int = field("c", "", "elements that are infinite or NaN, in 255ths, rounded up", shift=40, bits=8)
    zeros: int = field("c", "", "elements that are zero, in 255ths", shift=48, bits=8)
    origin: int = field("c", "", "0: from a DataLoader, 1: into a model, 2: into its first layer", shift=56, bits=2)
    training: int = field("c", "", "1: the model was in training mode; of a batch not known", shift=58, bits=1)
    grad: int = field("c", "", "1: autograd was enabled", shift=59, bits=1)
    integral: int = field("c", "", "1: all elements of the sample are whole numbers", shift=60, bits=1)
    subnormal: int = field("c", "", "1: at least a tenth of the elements are subnormal numbers", shift=61, bits=1)


@dataclass(frozen=True, slots=True)
class FeatureRange(Record):
    """Features (columns) of a floating tensor [samples, features], over all batches looked at so far."""

    code: ClassVar[int] = 76
    kind: ClassVar[str] = "feature_range"
    name: str = field("name", "", "where it is in the batch", is_name=True, bits=16)
    first: int = field("a", "", "the first feature with one and the same value in all samples", bits=32)
    features: int = field("a", "count", "features", shift=32, bits=31)
    value: float = field("b", "", "the value of that feature", is_float=True, bits=32)
    samples: int = field("b", "count", "samples looked at", shift=32, bits=31)
    source: int = field("c", "", "name id of the dataset's class", bits=16)
    loader: int = field("c", "", "number of the DataLoader object in this process", shift=16, bits=8)
    constant: int = field("c", "count", "features that never varied", shift=24, bits=20)
    zeros: int = field("c", "", "zeros among the features that vary, in 255ths", shift=44, bits=8)
    batches: int = field("c", "count", "batches looked at", shift=52, bits=11)


@dataclass(frozen=True, slots=True)
class LossCall(Record):
    """One call of a loss function of `torch.nn.functional` on a sampled step, one that raised, or one that the graph
    shows."""

    code: ClassVar[int] = 77
    kind: ClassVar[str] = "loss_call"
    name: str = field("name", "", "call-site", is_name=True, bits=16)
    least: float = field("a", "", "smallest element of a sample of the input", is_float=True, bits=32)
    most: float = field("a", "", "largest element", is_float=True, shift=32, bits=32)
    least_target: float = field("b", "", "smallest target", is_float=True, bits=32)
    most_target: float = field("b", "", "largest target", is_float=True, shift=32, bits=32)
    function: int = field("c", "", "name id of the function", bits=16)
    shape: int = field("c", "", "name id of both shapes: `[32, 1] against [32]`", shift=16, bits=16)
    classes: int = field("c", "count", "classes, of functions that have them", shift=32, bits=20)
    rows: int = field("c", "", "0: not known, 1: any numbers, 2: probabilities, 3: log-probabilities",
                      shift=52, bits=2)  # fmt: skip
    grad: int = field("c", "", "1: the input has a gradient", shift=54, bits=1)
    after_softmax: int = field("c", "", "1: the graph shows that a softmax or sigmoid gave the input, or the input of "
                               "its log-softmax", shift=55, bits=1)  # fmt: skip
    indices: int = field("c", "", "1: targets are class numbers", shift=56, bits=1)
    known: int = field("c", "", "1: values could be read; 0: the four numbers are none", shift=57, bits=1)
    broadcast: int = field("c", "", "0: one shape, 1: both were expanded, 2: one prediction for many targets",
                           shift=58, bits=2)  # fmt: skip
    raised: int = field("c", "", "1: the call raised, in whatever step; only its shapes are known", shift=60, bits=1)


@dataclass(frozen=True, slots=True)
class TokenLag(Record):
    """Where the targets of one call of a loss stand in the tokens that the model was given."""

    code: ClassVar[int] = 78
    kind: ClassVar[str] = "token_lag"
    name: str = field("name", "", "call-site of the loss", is_name=True, bits=16)
    before: int = field("a", "", "targets equal to the token before, in 255ths", bits=8)
    same: int = field("a", "", "targets equal to the token at the same place", shift=8, bits=8)
    next: int = field("a", "", "targets equal to the next token", shift=16, bits=8)
    second: int = field("a", "", "targets equal to the second token after it", shift=24, bits=8)
    third: int = field("a", "", "targets equal to the third token after it", shift=32, bits=8)
    compared: int = field("b", "count", "targets that were compared", bits=32)
    ignored: int = field("b", "", "targets that the loss ignores, in 255ths", shift=32, bits=8)
    function: int = field("c", "", "name id of the loss", bits=16)
    causal: int = field("c", "", "1: the model looks at no later token: a causal mask, a recurrence in one direction",
                        shift=16, bits=1)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IndexFailure(Record):
    """An index beyond its table, or a label beyond its classes, of the call that raised."""

    code: ClassVar[int] = 79
    kind: ClassVar[str] = "index_failure"
    name: str = field("name", "", "call-site", is_name=True, bits=16)
    value: int = field("a", "", "the first index that is out of range")
    size: int = field("b", "count", "rows of the table, or classes", bits=40)
    wrong: int = field("b", "count", "indices out of range", shift=40, bits=23)
    function: int = field("c", "", "name id of the function", bits=16)
    table: int = field("c", "", "name id of the table: `Net.embed.weight`; 0: none, or not known", shift=16, bits=16)
    sample: int = field("c", "", "its place in the first dimension of the batch", shift=32, bits=24)
