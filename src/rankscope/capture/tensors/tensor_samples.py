"""A few elements of each of many tensors, and what can be told from them: size, zeros, a fingerprint.

Two equal tensors have equal samples on every rank, so that replicas can be compared without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE = 256
"""Elements of a sample, at most."""
LARGEST_COPY = 1 << 20
"""Elements of a tensor that would have to be copied to be sampled; a larger one is left out."""


def readable(tensor: Any) -> Tensor | None:
    """The plain floating tensor behind `tensor`, of a distributed one the local part; None where there is none that
    can be read: sparse, complex, integer, quantised, meta, empty, or of a class of somebody's own."""
    import torch

    if tensor is None:
        return None
    local = getattr(tensor, "_local_tensor", None)
    plain = local if local is not None else tensor
    if type(plain) not in (torch.Tensor, torch.nn.Parameter) or plain.layout is not torch.strided:
        return None
    if not plain.is_floating_point() or plain.element_size() == 1 or plain.numel() == 0:
        return None
    found: Tensor | None = plain if plain.device.type in ("cpu", "cuda") else None
    return found


def observable() -> bool:
    """Whether tensors may be looked at now: no mode of the program's own watches operations, nothing is traced."""
    import torch

    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace takes what is done to a tensor, and its names
        return False
    transforms = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    if transforms is not None and transforms() is not None:  # vmap, grad: what a tensor holds is not to be had
        return False
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    return not torch.cuda.is_current_stream_capturing()


@dataclass(frozen=True, slots=True)
class Stat:
    """What a sample says of its tensor."""

    rms: float
    zeros: float
    """Share of its elements."""
    finite: bool
    fingerprint: int


class Samples:
    """Samples of several tensors of one device, as rows of a matrix of doubles; a copy, that holds no tensor alive."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        import torch

        self.counts = [min(SAMPLE, t.numel()) for t in tensors]
        device = tensors[0].device if tensors else torch.device("cpu")
        self.matrix = torch.zeros((len(tensors), SAMPLE), dtype=torch.float64, device=device)
        with torch.no_grad():
            rows = [self.matrix[i, :n] for i, n in enumerate(self.counts)]
            if rows:
                torch._foreach_copy_(rows, [_few(t, n) for t, n in zip(tensors, self.counts, strict=True)])

    def some(self, indices: Sequence[int]) -> Samples:
        """Those of some of the tensors."""
        found = Samples(())
        found.counts = [self.counts[i] for i in indices]
        found.matrix = self.matrix[list(indices)] if indices else self.matrix[:0]
        return found

    @property
    def finite(self) -> bool:
        """Whether all of them are; waits for a device."""
        import torch

        return bool(torch.isfinite(self.matrix).all())

    def stats(self) -> list[Stat]:
        """One a tensor; waits for a device."""
        import torch

        if not self.counts:
            return []
        with torch.no_grad():
            counts = torch.tensor(self.counts, dtype=torch.float64, device=self.matrix.device)
            rms = (self.matrix.square().sum(1) / counts).sqrt().tolist()
            zeros = (self.matrix == 0).sum(1).tolist()
            finite = torch.isfinite(self.matrix).all(1).tolist()
            # Adding 0.0 makes one zero of the two.
            bits = (self.matrix + 0.0).view(torch.int64)
            prints = (bits * _weights(self.matrix.device)).sum(1).tolist()
        return [
            Stat(rms[i], (zeros[i] - SAMPLE + n) / n, finite[i], prints[i]) for i, n in enumerate(self.counts)
        ]

    def changes(self, before: Samples) -> list[tuple[float, float]]:
        """(root mean square of the change, share of elements that changed) since `before`, one a tensor."""
        import torch

        if not self.counts:
            return []
        with torch.no_grad():
            difference = self.matrix - before.matrix
            counts = torch.tensor(self.counts, dtype=torch.float64, device=self.matrix.device)
            size = (difference.square().sum(1) / counts).sqrt().tolist()
            moved = (difference != 0).sum(1).tolist()
        return [(size[i], moved[i] / n) for i, n in enumerate(self.counts)]


def _few(tensor: Tensor, n: int) -> Tensor:
    """`n` elements of a tensor at even distances in its memory."""
    import torch

    numel = tensor.numel()
    plain = tensor.detach()
    # An odd distance: an even one would meet the same few columns of a matrix again and again.
    distance = (numel - 1) // (n - 1) if n > 1 else 1
    distance -= distance > 1 and distance % 2 == 0
    offset = plain.storage_offset()
    if plain.untyped_storage().nbytes() // plain.element_size() >= offset + numel:
        return torch.as_strided(plain, (n,), (distance,), offset)
    return plain.reshape(-1)[:n]


def norms(tensors: Sequence[Tensor]) -> list[float]:
    """L2 norm of each whole tensor; waits for a device."""
    import torch

    if not tensors:
        return []
    with torch.no_grad():
        found = torch._foreach_norm([t.detach() for t in tensors], 2)
        values: list[float] = torch.stack([x.to(torch.float64) for x in found]).tolist()
    return values


_kept: dict[Any, Tensor] = {}


def _weights(device: Any) -> Tensor:
    """An odd number for each place of a sample."""
    import torch

    known = _kept.get(device)
    if known is None:
        odd, numbers = 0x9E3779B97F4A7C15, []
        for i in range(SAMPLE):
            odd = odd * 0xD1342543DE82EF95 + 2 * i & (1 << 64) - 1
            numbers.append((odd | 1) - (1 << 63))
        known = _kept[device] = torch.tensor(numbers, dtype=torch.int64, device=device)
    return known
