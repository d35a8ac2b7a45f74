"""Replacing attributes of other people's modules, and putting them back."""

from __future__ import annotations

from typing import Any


class Patches:
    """Attributes replaced by one source; `undo` restores each, unless someone has patched over ours since."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any, bool]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set `owner.name` to `new` and remember what was there."""
        own = name in vars(owner)
        self._done.append((owner, name, getattr(owner, name), new, own))
        setattr(owner, name, new)

    def undo(self) -> None:
        for owner, name, old, new, own in reversed(self._done):
            current = vars(owner).get(name)
            if current is not new:
                continue
            if own:
                setattr(owner, name, old)
            else:
                delattr(owner, name)
        self._done.clear()
