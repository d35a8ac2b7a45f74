"""What goes into a loss function: the kind of its rows, the range of its targets, an index that is out of range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rankscope.records.batch_contents import LOG_PROBABILITIES, PLAIN, PROBABILITIES, UNKNOWN

if TYPE_CHECKING:
    from torch import Tensor

ROWS: Final = 64
"""Of the input that are looked at, at most."""
ELEMENTS: Final = 1 << 16
"""Of these rows together, unless two rows have more."""
LARGEST_ROW: Final = 1 << 18
TOLERANCE: Final = {"float64": 1e-6, "float32": 1e-4}
"""Of the sum of a row of probabilities: rounding of up to thousands of classes."""
COARSE: Final = 2e-2
"""The same of half precision."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a function takes."""

    prediction: str
    """Name of its first argument."""
    target: str
    classes: bool = False
    """Its input has a dimension of classes: the second one."""
    ignore_place: int = -1
    """Place of `ignore_index` among the arguments."""
    pairs: bool = False
    """It broadcasts: prediction and target are compared element by element."""
    unit: bool = False
    """It wants numbers of any size, not such from 0 to 1."""


LOSSES: Final[dict[str, Expected]] = {
    "cross_entropy": Expected("input", "target", classes=True, ignore_place=4),
    "nll_loss": Expected("input", "target", classes=True, ignore_place=4),
    "kl_div": Expected("input", "target", classes=True),
    "binary_cross_entropy_with_logits": Expected("input", "target", unit=True),
    "binary_cross_entropy": Expected("input", "target"),
    "mse_loss": Expected("input", "target", pairs=True),
    "l1_loss": Expected("input", "target", pairs=True),
    "smooth_l1_loss": Expected("input", "target", pairs=True),
    "huber_loss": Expected("input", "target", pairs=True),
    "ctc_loss": Expected("log_probs", "targets"),
}
"""Functions of `torch.nn.functional` that are watched."""
INDEXED: Final = ("cross_entropy", "nll_loss")
"""Their targets may be class numbers."""


def argument(args: Any, kwargs: Any, place: int, name: str) -> Any:
    """An argument that may be given by place or by name; None where it is not given."""
    return args[place] if place < len(args) else kwargs.get(name)


def classes_of(prediction: Any) -> int:
    """Size of the dimension of classes."""
    if prediction.dim() == 0:
        return 0
    return int(prediction.shape[1 if prediction.dim() > 1 else 0])


def rows_kind(function: str, prediction: Tensor) -> int:
    """What a sample of an input's rows over the classes is; of a function without classes, what its elements are."""
    import torch

    if not prediction.is_floating_point():
        return UNKNOWN
    with torch.no_grad():
        plain = prediction.detach()
        expected = LOSSES[function]
        if not expected.classes:
            if not expected.unit:
                return UNKNOWN
            least, most = (float(x) for x in torch.aminmax(plain[:ROWS]))
            return PROBABILITIES if least >= 0 and most <= 1 else PLAIN
        if not 2 <= classes_of(plain) <= LARGEST_ROW:
            return UNKNOWN
        rows = _rows(plain)
        near = TOLERANCE.get(str(prediction.dtype).removeprefix("torch."), COARSE)
        if bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() <= near).all()):
            return PROBABILITIES
        if bool((rows <= near).all()) and bool((rows.logsumexp(1).abs() <= near).all()):
            return LOG_PROBABILITIES
        return PLAIN


def _rows(prediction: Tensor) -> Tensor:
    """[rows, classes] in double precision: some rows at even distances."""
    import torch

    while prediction.dim() > 2:  # [N, C, places ...]: the first place of each sample
        prediction = prediction.select(-1, 0)
    rows = prediction if prediction.dim() == 2 else prediction[None]
    most = max(2, min(ROWS, ELEMENTS // max(1, rows.shape[1])))
    return rows[:: -(-rows.shape[0] // most)].to(torch.float64)


@dataclass(frozen=True, slots=True)
class OutOfRange:
    value: int
    size: int
    wrong: int
    sample: int


def out_of_range(indices: Tensor, size: int, ignored: int | None) -> OutOfRange | None:
    """The first index that is not one of `size`; None where all are."""
    import torch

    with torch.no_grad():
        plain = indices.detach()
        bad = (plain < 0) | (plain >= size)
        if ignored is not None:
            bad &= plain != ignored
        wrong = int(bad.sum())
        if not wrong:
            return None
        place = int(bad.reshape(-1).to(torch.uint8).argmax())
        inner = max(1, plain[0].numel()) if plain.dim() else 1
        return OutOfRange(int(plain.reshape(-1)[place]), size, wrong, place // inner)
