"""A timeline into a file, whole or not at all; the name's ending says how."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from rankscope.report.timeline.parts import Part, Slices
from rankscope.views.perfetto.chrome import ChromeWriter
from rankscope.views.perfetto.native import NativeWriter

PACKING: Final = 4
"""Of 9: three quarters of what packs at 9 does, in a third of the time."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came into the file."""

    slices: int
    bytes: int


def write_timeline(path: Path, parts: Iterable[Part]) -> Written:
    """Write parts as they come. Raises OSError; then, and where `parts` raises, there is no file that was not before.

    `x.json` is Chrome's format, everything else Perfetto's own; with `.gz` behind it is packed.
    """
    slices = 0
    with _whole(path) as raw:
        with _packed(raw, path.name.lower().endswith(".gz")) as stream:
            json = path.name.lower().removesuffix(".gz").endswith(".json")
            writer = ChromeWriter(stream) if json else NativeWriter(stream)
            for part in parts:
                writer.write(part)
                slices += len(part.start_ns) if isinstance(part, Slices) else 0
            writer.finish()
        raw.flush()
        size = os.fstat(raw.fileno()).st_size
    return Written(slices, size)


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file under another name that takes the place of `path` when all of it has been written."""
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with path.open("wb") as stream:
            yield stream
        return
    target = path.resolve()  # a link stays one
    temporary = target.with_name(f".timeline.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _packed(raw: BinaryIO, pack: bool) -> Iterator[BinaryIO]:
    if not pack:
        yield raw
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=PACKING, fileobj=raw, mtime=0) as stream:
        yield cast(BinaryIO, stream)
