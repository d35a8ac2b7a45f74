"""Reads from the graph of a loss what it was multiplied with last: `loss * 1024`, `loss / 4`."""

from __future__ import annotations

from typing import Any, Final

DEEPEST: Final = 8
"""Operations that are followed back."""
PASSED: Final = ("ToCopyBackward0", "ViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "CloneBackward0")
"""Operations between two factors that leave the value as it is."""


def loss_factor(loss: Any) -> float:
    """The product of the trailing factors of a loss, 1.0 without any; NaN where a factor is there and cannot be read
    without running code of the program's (hooks on saved tensors), or waiting for a device."""
    product, node = 1.0, getattr(loss, "grad_fn", None)
    for _ in range(DEEPEST):
        if node is None:
            break
        kind = node.name()
        if kind in ("MulBackward0", "DivBackward0"):
            value, inner = _number(node)
            if value is None:
                break
            product = product * value if kind == "MulBackward0" else product / value if value else float("nan")
        elif kind in PASSED:
            inner = 0
        else:
            break
        following = node.next_functions
        node = following[inner][0] if len(following) > inner else None
    return product


def _number(node: Any) -> tuple[float | None, int]:
    """The constant factor of a product, and which of its inputs is the other one; None where both need gradients."""
    following = node.next_functions
    if len(following) < 2 or (following[0][0] is not None) == (following[1][0] is not None):
        return None, 0
    inner = 0 if following[0][0] is not None else 1
    # What is saved for the gradient of the one input is the other one.
    saved = getattr(node, "_raw_saved_other" if inner == 0 else "_raw_saved_self", None)
    if saved is None or getattr(saved, "unpack_hook", saved) is not None:
        return float("nan"), inner
    value = saved.data
    if value is None or value.device.type != "cpu" or value.numel() != 1 or value.is_complex():
        return (float("nan"), inner) if value is not None and value.numel() == 1 else (None, inner)
    return float(value), inner
