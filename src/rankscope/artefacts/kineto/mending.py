"""Makes JSON out of what profilers write though it is none."""

from __future__ import annotations

import re
from typing import Final

# What C++ prints of a double that is no number ("memory bandwidth (GB/s)": inf), and `N/A` for a missing one.
_NO_NUMBER: Final = re.compile(
    rb'((?<!\\)":\s*)[-+]?(?:inf(?:inity)?|nan(?:\([a-z]*\))?|N/A)(?=\s*[,}\]])', re.IGNORECASE
)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# A backslash that begins no escape: paths of Windows in call stacks.
_BACKSLASH: Final = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')


def mended(piece: bytes) -> bytes:
    """The same with wrong numbers as null, bytes that are no UTF-8 replaced, control characters but tabs and line
    breaks as spaces, and lone backslashes escaped. Only for what could not be read as it is: this is slow."""
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        piece = piece.decode("utf-8", "replace").encode("utf-8")
    piece = _NO_NUMBER.sub(rb"\1null", piece)
    piece = _CONTROL.sub(b" ", piece)
    return _BACKSLASH.sub(lambda match: match[0] if match[1] else b"\\\\", piece)
