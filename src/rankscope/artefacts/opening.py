"""Opens what the user gave: plain or compressed, alone or in an archive, never more of it than there is room for."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from rankscope.artefacts.reader import Unreadable

HEAD: Final = 1 << 16
LARGEST: Final = 16 << 30
"""Bytes of one file, unpacked: a trace of an hour has a tenth of that."""
LARGEST_RATIO: Final = 200
"""Unpacked over packed bytes; traces come to 10 to 30, JSON of nothing but zeros to 1,000."""
FREE: Final = 64 << 20
"""Bytes that may be unpacked whatever their ratio."""
PIECE: Final = 1 << 16
"""Bytes that are unpacked at once: so many are lost before the place where a file is cut off."""
MOST_MEMBERS: Final = 20_000
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError, ValueError)
"""What the standard library raises at damaged or encrypted files."""


class _Bounded(io.RawIOBase):
    """A stream that refuses to go on where more comes out than could be meant."""

    def __init__(self, stream: BinaryIO, packed: int, shown: str) -> None:
        self._stream, self._packed, self._shown = stream, max(1, packed), shown
        self._out = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer)).cast("B")
        try:
            data = self._stream.read(min(len(view), PIECE))
        except BROKEN as error:
            raise Unreadable(f"damaged after {self._out:,} unpacked bytes ({error or type(error).__name__})") from error
        self._out += len(data)
        if self._out > LARGEST or (self._out > FREE and self._out > LARGEST_RATIO * self._packed):
            raise Unreadable(
                f"{self._packed:,} bytes unpack to more than {self._out:,}: refused, it looks like a bomb; "
                "unpack it by hand if it is none"
            )
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed by what it is rather than by its name. Raises `Unreadable`."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise Unreadable(f"cannot be opened ({error.strerror or error})") from error
    with raw:
        stream = _decompressed(raw, path)
        if stream is None:
            yield raw
            return
        with io.BufferedReader(_Bounded(stream, path.stat().st_size, path.name), 1 << 20) as bounded:
            yield bounded


def head_of(path: Path) -> bytes:
    """The first 64 KiB, decompressed."""
    with opened(path) as stream:
        return stream.read(HEAD)


def _decompressed(raw: BinaryIO, path: Path) -> BinaryIO | None:
    """None: it is not compressed."""
    magic = raw.read(6)
    raw.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if magic[:3] == b"BZh":
        return cast(BinaryIO, bz2.BZ2File(raw))
    if magic == b"\xfd7zXZ\0":
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if magic[:4] == b"\x28\xb5\x2f\xfd":
        raise Unreadable("is compressed with zstd; unpack it first (`unzstd FILE`)")
    return None


def is_archive(path: Path) -> bool:
    """Whether it is a tar, compressed or not, or a zip of files. A PyTorch checkpoint is a zip too, and no archive."""
    try:
        head = head_of(path)
    except Unreadable:
        return False
    if head[257:262] == b"ustar":
        return True
    return head[:4] == b"PK\x03\x04" and b"/data.pkl" not in head[:4096]


def members(path: Path) -> Iterator[tuple[str, Path | None, str]]:
    """(name, unpacked file, "") of each file in an archive, one at a time: the file is gone when the next is asked for.

    (name, None, why) where a member cannot be had. Raises `Unreadable` where the archive itself is broken. Names lead
    nowhere: nothing is written where a member's name says.
    """
    with tempfile.TemporaryDirectory(prefix="rankscope-unpacked-") as folder, path.open("rb") as raw:
        if raw.read(4) == b"PK\x03\x04":
            yield from _zip_members(path, Path(folder))
        else:
            yield from _tar_members(path, Path(folder))


def _tar_members(path: Path, folder: Path) -> Iterator[tuple[str, Path | None, str]]:
    count = 0
    with opened(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    if not member.isfile():
                        continue
                    count += 1
                    if count > MOST_MEMBERS:
                        raise Unreadable(f"has more than {MOST_MEMBERS:,} files; unpack what matters")
                    source = archive.extractfile(member)
                    if source is not None:
                        yield _unpacked(cast(BinaryIO, source), folder, member.name, member.size)
        except tarfile.TarError as error:
            raise Unreadable(f"the tar is damaged after {count} files ({error})") from error


def _zip_members(path: Path, folder: Path) -> Iterator[tuple[str, Path | None, str]]:
    try:
        archive = zipfile.ZipFile(path)
    except BROKEN as error:
        raise Unreadable(f"the zip is damaged ({error})") from error
    with archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MOST_MEMBERS:
            raise Unreadable(f"has {len(entries):,} files, more than {MOST_MEMBERS:,}; unpack what matters")
        for entry in entries:
            try:
                source = archive.open(entry)
            except (*BROKEN, NotImplementedError) as error:
                yield entry.filename, None, f"cannot be unpacked ({error})"
                continue
            with source:
                yield _unpacked(cast(BinaryIO, source), folder, entry.filename, entry.compress_size)


def _unpacked(source: BinaryIO, folder: Path, name: str, packed: int) -> tuple[str, Path | None, str]:
    # Its own name and that of its folder, for the rank that may stand in them; what leads elsewhere is cut off.
    *_, above, own = "", *(part for part in Path(name).parts if part not in ("/", "..", "."))
    target = folder / above / (own or "member")
    try:
        target.parent.mkdir(exist_ok=True)
        with io.BufferedReader(_Bounded(source, packed, name)) as stream, target.open("wb") as out:
            while chunk := stream.read(1 << 20):
                out.write(chunk)
    except Unreadable as error:
        return name, None, str(error)
    except OSError as error:
        return name, None, f"cannot be unpacked ({error.strerror or error})"
    return name, target, ""
