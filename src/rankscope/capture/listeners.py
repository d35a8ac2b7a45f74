"""Tells everyone who listens to something; what one of them does wrong concerns nobody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankscope.base.guard import swallow


def tell(listeners: Sequence[Callable[..., None]], doing: str, *args: Any) -> None:
    """Call each listener with `args`; an error is counted as one of `doing`."""
    for call in tuple(listeners):  # one of them may leave
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001  the wall between us and the user's program
            swallow(doing, error)
