"""Rankscope: what makes a training run slow, stuck or wrong, on all its ranks.

The calls for training scripts; importing this package imports neither torch nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankscope.base.version import VERSION

__version__ = VERSION

__all__ = ["__version__", "log", "phase", "start", "step", "stop", "watch"]

if TYPE_CHECKING:
    from rankscope.capture.api import log, phase, start, step, stop, watch


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rankscope.capture import api

        return getattr(api, name)
    raise AttributeError(f"module 'rankscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
