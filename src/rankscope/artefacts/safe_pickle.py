"""Loads pickles of plain values only: numbers, texts, lists, dictionaries. Nothing in them can run or be looked up."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import BinaryIO, Final, NoReturn

from rankscope.artefacts.reader import Unreadable

FORBIDDEN: Final = frozenset(
    (
        "GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "PERSID", "BINPERSID",
        "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER",
    )
)  # fmt: skip
"""Operations that call, look up or set something."""
NUMBERING: Final = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
LARGEST: Final = 1 << 30


def load_plain(stream: BinaryIO, limit_bytes: int = LARGEST) -> object:
    """The value in a pickle. Raises `Unreadable` where it is larger, damaged, or wants more than plain values.

    Every operation is looked at before the first one is executed; then an unpickler that knows no global executes them.
    """
    data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise Unreadable(f"has more than {limit_bytes:,} bytes, far more than such a file has")
    try:
        for operation, argument, position in pickletools.genops(data):
            if operation.name in FORBIDDEN:
                raise Unreadable(f"byte {position:,}: wants to run code ({operation.name}); it is not executed")
            # The unpickler makes room for as many values as the highest number says: 32 GB of it for four bytes.
            if operation.name in NUMBERING and isinstance(argument, int) and argument > len(data):
                raise Unreadable(f"byte {position:,}: numbers a value {argument:,}, of fewer bytes; it is damaged")
        return _Plain(io.BytesIO(data)).load()
    except Unreadable:
        raise
    except Exception as error:  # damaged pickles raise whatever their next bytes come to
        raise Unreadable(f"is no whole pickle of plain values ({type(error).__name__}: {error})") from error


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise Unreadable(f"wants {module}.{name}; it is not executed")

    def persistent_load(self, pid: object) -> NoReturn:
        raise Unreadable("refers to something outside of the file")
