"""How numbers of bytes read."""

from __future__ import annotations


def size(value: float) -> str:
    """`512 B`, `20.0 MiB`, `1.50 GiB`."""
    for unit, scale, digits in (("TiB", 1 << 40, 2), ("GiB", 1 << 30, 2), ("MiB", 1 << 20, 1), ("KiB", 1 << 10, 1)):
        if abs(value) >= scale:
            return f"{value / scale:.{digits}f} {unit}"
    return f"{value:.0f} B"
