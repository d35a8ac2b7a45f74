"""What a stack says of an allocation: whose line it is, and in which part of a training step it was made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankscope.records.imported.memory_snapshot import Frame, MemorySnapshot

FORWARD, BACKWARD, OPTIMIZER, SETUP, ZERO_GRAD = 1, 2, 4, 8, 16
"""Parts of a step that a stack can show, as bits."""

_PYTHON: Final = re.compile(r"\.py$|\.pyx$|^<|ipykernel|\.ipynb")
_TORCH: Final = re.compile(
    r"(^|/)torch/(nn|optim|autograd|utils|distributed|cuda|amp|fx|jit|func|profiler|_\w+|\w+\.py)(/|\.|$)"
    r"|(^|/)torchgen/"
    r"|torchinductor|(^|/)c[a-z2-7]{51}\.py$"  # compiled code, whose lines nobody has written
)
_STANDARD: Final = re.compile(r"/lib/python3\.\d+/(?!site-packages|dist-packages)|^<(frozen|string|eval_with_key)")
_OTHERS: Final = re.compile(r"(^|/)(site-packages|dist-packages)/")
_OPTIMIZER_FILE: Final = re.compile(r"(^|/)(optim|optimizer|optimizers|ops/adam|bitsandbytes/optim)(/|\.py$)")
_OPTIMIZER_STEP: Final = re.compile(
    r"^(_init_group|_?step|profile_hook_step|_use_grad|_(multi|single)_tensor_\w+|_fused_\w+|init_state)$"
)
_SETUP: Final = frozenset({"_apply", "to", "cuda", "convert", "to_empty", "load_state_dict", "_load_from_state_dict"})
_ENGINE: Final = ("torch::autograd::Engine", "torch::autograd::AccumulateGrad", "torch::autograd::PyNode")


@dataclass(frozen=True, slots=True)
class Site:
    """A line that allocates."""

    place: Frame | None
    """The innermost Python line outside of torch: the model's own, or a library's."""
    user: Frame | None
    """The innermost line of the user's code."""
    parts: int
    """Bits of `FORWARD` and so on."""

    @property
    def text(self) -> str:
        """`forward (model.py:12)`, or what stands for a stack without Python."""
        if self is NOWHERE:
            return "a line that was not recorded"
        if self.place is None:
            return "backward (no Python frames)" if self.parts & BACKWARD else "code without Python frames"
        return f"{self.place.function} ({self.place.file.rsplit('/', 1)[-1]}:{self.place.line})"


NOWHERE: Final = Site(None, None, 0)
"""Of an allocation whose stack was not recorded."""


class Sites:
    """The sites of a snapshot's stacks, found once each."""

    def __init__(self, snapshot: MemorySnapshot) -> None:
        count = len(snapshot.stack_start) - 1
        kinds = [_kind(frame) for frame in snapshot.frames]
        # Where Python is recorded at all, a thread without it is autograd's: nothing else allocates on its own.
        any_python = any(kind.python for kind in kinds)
        self._sites = [self._site(snapshot, number, kinds, any_python) for number in range(count)]
        self.parts: NDArray[np.int64] = np.array([site.parts for site in self._sites] + [0], np.int64)
        """[stack + 1] bits; the last one is that of -1."""

    def __getitem__(self, stack: int) -> Site:
        return self._sites[stack] if stack >= 0 else NOWHERE

    @staticmethod
    def _site(snapshot: MemorySnapshot, number: int, kinds: list[_Kind], any_python: bool) -> Site:
        numbers = snapshot.stack_frames[snapshot.stack_start[number] : snapshot.stack_start[number + 1]].tolist()
        mine = [kinds[n] for n in numbers]
        parts = 0
        for kind in mine:
            parts |= kind.parts
        python = [n for n, kind in zip(numbers, mine, strict=True) if kind.python]
        if any_python and not python:
            parts |= BACKWARD
        place = next((n for n in python if kinds[n].whose != "torch"), None)
        user = next((n for n in python if kinds[n].whose == "user"), None)
        if place is None and python:
            place = python[0]
        return Site(
            snapshot.frames[place] if place is not None else None,
            snapshot.frames[user] if user is not None else None,
            parts,
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    python: bool
    whose: str
    parts: int


def _kind(frame: Frame) -> _Kind:
    file, name = frame.file, frame.function
    if not _PYTHON.search(file):
        return _Kind(False, "torch", BACKWARD if any(part in name for part in _ENGINE) else 0)
    whose = "user"
    if _TORCH.search(file) or _STANDARD.search(file):
        whose = "torch"
    elif _OTHERS.search(file):
        whose = "library"
    return _Kind(True, whose, _parts(file, name))


def _parts(file: str, name: str) -> int:
    if name == "zero_grad":
        return ZERO_GRAD
    if _OPTIMIZER_FILE.search(file) and _OPTIMIZER_STEP.match(name):
        return OPTIMIZER
    if file.endswith("nn/modules/module.py"):
        return SETUP if name in _SETUP else FORWARD if name in ("_call_impl", "_wrapped_call_impl") else 0
    if name == "_engine_run_backward" or (name in ("backward", "unpack_hook", "recompute_fn") and _TORCH.search(file)):
        return BACKWARD
    if name == "forward":
        return FORWARD
    if name in ("from_pretrained", "reset_parameters") or (name == "__init__" and "nn/modules/" in file):
        return SETUP
    return 0
