"""Numbers as people read them: three digits, the unit that fits, a word where there is no number."""

from __future__ import annotations

from collections.abc import Callable

UNKNOWN = "not measured"
"""Stands where there is no value; never a 0."""


def time_text(ms: float | None) -> str:
    """A time given in ms: `58.2 ms`, `740 µs`, `3.20 s`, `4 min 05 s`, `2 h 10 min`."""
    if ms is None:
        return UNKNOWN
    for limit, factor, unit in _TIMES:
        if abs(ms) < limit:
            return f"{three_digits(ms * factor) if ms else 0} {unit if ms else 'ms'}"
    minutes, seconds = divmod(round(ms / 1e3), 60)
    return f"{minutes} min {seconds:02} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def share_text(share: float | None) -> str:
    """A share between 0 and 1 in percent: `31 %`, `5.3 %`, `< 0.1 %`."""
    if share is None:
        return UNKNOWN
    percent = abs(share) * 100
    sign = "-" if share < 0 else ""
    if percent == 0:
        return "0 %"
    if percent < 0.1:
        return f"< {sign}0.1 %"
    return f"{sign}{percent:.1f} %" if percent < 9.95 else f"{sign}{percent:.0f} %"


def ratio_text(ratio: float) -> str:
    """A ratio: `1.4x`, `12x`."""
    return f"{ratio:.2f}x" if ratio < 1.095 else f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:.0f}x"


def bytes_text(size: float) -> str:
    """A size in bytes: `512 B`, `3.20 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1023.5:
            return f"{size:.0f} B" if unit == "B" else f"{three_digits(size)} {unit}"
        size /= 1024
    return f"{three_digits(size)} TiB"


def count_text(value: float) -> str:
    """A count or a plain number: `12,400`, `0.031`, `1.2e-07`."""
    if value == round(value) and abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if 1000 <= abs(value) < 1e12 else f"{value:.3g}"


def value_text(value: float | None, unit: str) -> str:
    """A value of evidence with its unit."""
    if value is None:
        return "not finite"
    show = _UNITS.get(unit)
    return show(value) if show else f"{count_text(value)} {unit}"


def three_digits(value: float) -> str:
    """Three significant digits, trailing zeros kept, so that numbers of one column look alike."""
    return f"{value:#.3g}".rstrip(".")


# Limits lie where rounding to three digits would reach the next unit.
_TIMES = ((0.0009995, 1e6, "ns"), (0.9995, 1e3, "µs"), (999.5, 1.0, "ms"), (119_500.0, 1e-3, "s"))

_UNITS: dict[str, Callable[[float], str]] = {
    "ns": lambda value: time_text(value / 1e6),
    "us": lambda value: time_text(value / 1e3),
    "µs": lambda value: time_text(value / 1e3),
    "ms": time_text,
    "s": lambda value: time_text(value * 1e3),
    "share": share_text,
    "%": lambda value: share_text(value / 100),
    "bytes": bytes_text,
    "B": bytes_text,
    "x": ratio_text,
    "ratio": ratio_text,
    "count": count_text,
    "": count_text,
}
