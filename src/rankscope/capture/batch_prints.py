"""What a batch says of itself at little cost: a fingerprint of some elements, its length, where its labels stand.

Whatever a collate function returns is walked: tensors, arrays, numbers and texts in lists, tuples, mappings,
dataclasses and plain objects, up to a limit. Memory is read where it lies; nothing is converted or kept.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

ELEMENTS: Final = 64
"""Of each tensor that are read."""
MOST_LEAVES: Final = 24
"""Tensors and other values of a batch that are looked at; a batch of variable parts is a list of as many as it has."""
MOST_VISITED, DEEPEST = 200, 6
TEXT: Final = 64
"""Characters of a text that are read."""
NO_LABELS: Final = ("idx", "ind", "len", "id", "size", "mask", "pos", "offset", "count", "num")
"""In the name of a vector of integers: it holds no classes."""
LABELS: Final = ("label", "target", "class", "y")
"""Beginnings of names of vectors that hold classes."""
SIXTEEN: Final = bytes(i & 15 for i in range(256))
"""The lowest four bits of each byte."""

_arrays: dict[int, Any] = {}
_formats: dict[Any, tuple[int, Any, bool]] = {}


class Contents(NamedTuple):
    """What was read of one batch."""

    fingerprint: int
    integers: int
    """Fingerprint of its tensors of integers; 0: it has none."""
    samples: int
    length: int
    labels: bytes
    """The lowest bytes of a sample of its class labels; empty: not asked for, or it has none."""
    label_path: str


NOTHING: Final = Contents(0, 0, 0, 0, b"", "")
"""Of a batch that was not looked at."""


def look(batch: Any, with_labels: bool) -> Contents:
    """Fingerprints, size and length of a batch; with `labels` where they are asked for and there are some."""
    tensor_type = sys.modules["torch"].Tensor
    crc = integers = samples = length = elements = leaves = visited = 0
    labels, label_path = b"", ""
    stack: list[tuple[Any, Any, int]] = [(batch, "", 0)]
    while stack and leaves < MOST_LEAVES and visited < MOST_VISITED:
        item, key, depth = stack.pop()
        visited += 1
        kind = type(item)
        if kind is tensor_type:
            leaves += 1
            size = item.numel()
            elements += size
            dtype = item.dtype
            width, form, integral = _formats.get(dtype) or _format(dtype)
            data = read(item, size, width, form)
            crc = crc32(data, crc)
            if integral or not samples:
                shape = item.shape
                if shape and not samples:
                    samples = shape[0]
                if integral:
                    integers = crc32(data, integers)
                    if len(shape) >= 2:
                        length = length or (shape[1] if shape[1] > 1 else 0)
                    elif with_labels and shape and shape[0] == samples > 1 and _better(labels, key):
                        labels, label_path = data[::width], str(key)
        elif kind is str or kind is bytes:
            leaves += 1
            crc = crc32(item[:TEXT].encode("utf-8", "replace") if kind is str else item[:TEXT], crc)
        elif kind is int or kind is float or kind is bool:
            leaves += 1
            crc = crc32(repr(item).encode(), crc)
        elif depth < DEEPEST:
            _push(stack, item, kind, depth + 1)
    return Contents(crc, integers, samples, length or elements // (samples or 1), labels, label_path)


def _format(dtype: Any) -> tuple[int, Any, bool]:
    """(bytes of an element, format of its memory, whether a whole number that may be a class) of a dtype, kept."""
    width = int(dtype.itemsize)
    integral = not (dtype.is_floating_point or dtype.is_complex) and width > 1
    known = _formats[dtype] = width, {1: "B", 2: "H", 4: "I", 8: "Q"}.get(width, ""), integral
    return known


def read(tensor: Any, size: int, width: int, form: Any) -> bytes:
    """Up to 64 elements of a tensor at even distances, as they lie in memory; nothing where it cannot be read."""
    if not size or not form or not tensor.is_cpu:
        return b""
    try:
        if not tensor.is_contiguous():
            size = min(size, tensor.untyped_storage().nbytes() // width - tensor.storage_offset())
        address = tensor.data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse, or of another layout without memory of its own
        return b""
    if not address or size <= 0:
        return b""
    array = _arrays.get(size * width)
    if array is None:
        if len(_arrays) > 200:
            _arrays.clear()  # lengths that vary from batch to batch
        array = _arrays[size * width] = ctypes.c_char * (size * width)
    # An odd distance: an even one would meet the same few columns of a matrix again and again.
    view = memoryview(array.from_address(address)).cast("B")
    return (view.cast(form) if width > 1 else view)[:: size // ELEMENTS | 1].tobytes()[: ELEMENTS * width]


def _push(stack: list[tuple[Any, Any, int]], item: Any, kind: type, depth: int) -> None:
    """Put the parts of a container on the stack, the first one on top."""
    if kind is list or kind is tuple:
        few = item if len(item) <= MOST_LEAVES else item[:MOST_LEAVES]
        for i in range(len(few) - 1, -1, -1):
            stack.append((few[i], i, depth))
        return
    if kind is dict:
        stack += [(value, key, depth) for key, value in reversed(list(item.items())[:MOST_LEAVES])]
        return
    if item is None:
        return
    if isinstance(item, tuple):  # a named tuple
        names = getattr(item, "_fields", range(len(item)))
        stack += [(value, name, depth) for name, value in reversed(list(zip(names, item, strict=False))[:MOST_LEAVES])]
        return
    if isinstance(item, list):
        stack += [(value, i, depth) for i, value in reversed(list(enumerate(item[:MOST_LEAVES])))]
        return
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and kind is numpy.ndarray:
        if item.dtype.kind in "biuf" and item.size:
            stack.append((item.reshape(-1)[:: max(1, item.size // ELEMENTS)][:ELEMENTS].tobytes(), "", depth))
        return
    if isinstance(item, sys.modules["torch"].Tensor) or kind.__module__ == "builtins":
        return  # of a class of somebody's own, whose operations may do anything
    # A transformers.BatchEncoding keeps its tensors in `data`, a torch_geometric batch in `_store._mapping`.
    inner = getattr(item, "__dict__", None)
    if isinstance(item, Mapping) and type(inner) is dict and type(inner.get("data")) is dict:
        inner = inner["data"]
    if type(inner) is dict:
        parts = [(value, key, depth) for key, value in inner.items() if type(key) is str]
        stack += reversed(parts[:MOST_LEAVES])
    slots = getattr(kind, "__slots__", ())
    if inner is None and hasattr(kind, "__dataclass_fields__") and slots:
        stack += [(getattr(item, name, None), name, depth) for name in reversed(tuple(slots)[:MOST_LEAVES])]


def _better(known: bytes, key: Any) -> bool:
    """Whether a vector of integers looks more like class labels than the one before: by its name, or the first."""
    if type(key) is not str:
        return not known
    name = key.lower()
    return not any(word in name for word in NO_LABELS) and (not known or name.startswith(LABELS))


def label_counts(labels: bytes) -> tuple[int, int, int]:
    """(counts of labels 0-7, of 8-15, different labels) in a sample of lowest bytes; modulo 16, eight bits a count."""
    sixteen = labels.translate(SIXTEEN)
    low = high = 0
    for value in set(sixteen):
        if value < 8:
            low |= sixteen.count(value) << 8 * value
        else:
            high |= sixteen.count(value) << 8 * (value - 8)
    return low, high, len(set(labels))


def order_of(indices: Any) -> tuple[int, bool]:
    """(fingerprint of a batch's sample indices, whether they rise); (0, False) where they are no numbers."""
    if type(indices) is not list and type(indices) is not tuple:
        indices = (indices,)
    if not indices:
        return 0, False
    few = indices[:: len(indices) // 16 | 1]
    kind = type(few[0])
    if kind is not int:
        if few[0] is None or not hasattr(kind, "__index__"):
            return 0, False
        few = [int(i) for i in few]
    # Of numbers Python's hash is the same in every process.
    return (hash((len(indices), *few)) & 0xFFFFFFFF) | 1, list(few) == sorted(few)
