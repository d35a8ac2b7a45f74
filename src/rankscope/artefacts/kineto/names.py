"""Numbers instead of strings."""

from __future__ import annotations


class Numbering(dict[str, int]):
    """The number of each string, in the order in which they came: `numbering[text]` gives a new one its own."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def of(self, text: str | None) -> int:
        """-1 for None."""
        return -1 if text is None else self[text]
