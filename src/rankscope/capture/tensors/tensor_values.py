"""Which tensors can be read without waiting, and what a sample of one says: range, mean, share of odd numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS: Final = 1 << 13
"""Of a tensor that are read, at most; each pass over them takes some µs."""
LARGEST_COPY: Final = 1 << 17
"""Elements of a part that is copied to be sampled, of a tensor that does not lie in one piece."""
MANY: Final = 0.1
"""Share of subnormal numbers from which a tensor is said to have them."""


@dataclass(frozen=True, slots=True)
class Values:
    """What a sample of a tensor says of it. Mean, deviation and range are those of its finite elements; NaN: none."""

    mean: float
    std: float
    least: float
    most: float
    non_finite: float
    """Share of its elements."""
    zeros: float
    integral: bool
    """All elements are whole numbers."""
    subnormal: bool
    """Many of them are subnormal numbers."""


def plain(value: Any) -> Tensor | None:
    """The tensor itself where it is one that can be read without waiting; None elsewhere."""
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return None
    if value.device.type != "cpu" or value.is_complex() or value.is_quantized or value.numel() == 0:
        return None
    found: Tensor = value
    return found


def shape_of(tensor: Any) -> str:
    """`float32[32, 3, 8, 8]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def few(tensor: Tensor, most: int = ELEMENTS) -> Tensor:
    """At most `most` elements at even distances, as one row; a view where it lies in one piece."""
    plain = tensor.detach()
    if not plain.is_contiguous():
        while plain.dim() > 1 and plain.numel() > LARGEST_COPY:
            step = -(-plain.numel() // LARGEST_COPY)
            largest = max(range(plain.dim()), key=lambda i: plain.shape[i])
            plain = plain.movedim(largest, 0)[:: min(step, plain.shape[largest])]
    row = plain.reshape(-1)
    step = -(-row.numel() // most)
    # An odd distance: an even one would meet the same few columns again and again.
    return row[:: step + (step > 1 and step % 2 == 0)]


def values_of(tensor: Tensor) -> Values:
    """What a sample of a tensor that `plain` gave says."""
    import torch

    with torch.no_grad():
        floating = tensor.is_floating_point()
        raw = few(tensor)
        row = raw.to(torch.float64)
        count = row.numel()
        least, most = (float(x) for x in torch.aminmax(row))
        finite = row
        if not (math.isfinite(least) and math.isfinite(most)):
            finite = row[row.isfinite()]
            if not finite.numel():
                nan = math.nan
                return Values(nan, nan, nan, nan, 1.0, 0.0, False, False)
            least, most = (float(x) for x in torch.aminmax(finite))
        std, mean = (float(x) for x in torch.std_mean(finite, correction=0))
        zeros = 1 - int(row.count_nonzero()) / count
        integral = not floating or bool((finite == finite.round()).all())
        subnormal = False
        if floating and max(abs(least), abs(most)) > 0 and not integral:
            size = finite.abs()
            few_bits = (size > 0) & (size < torch.finfo(raw.dtype).tiny)
            subnormal = int(few_bits.sum()) >= MANY * count
    return Values(mean, std, least, most, 1 - finite.numel() / count, zeros, integral, subnormal)
