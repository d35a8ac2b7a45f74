"""Reads files of other tools on all CPUs, each file wholly in one process and gone when it is done."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from rankscope.analysis.imported.examination import Kept, digested
from rankscope.artefacts import readers
from rankscope.artefacts.opening import head_of, is_archive, members
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.base.guard import swallow
from rankscope.base.plugins import load_all
from rankscope.report.imported import Imported
from rankscope.report.report import InputFile

WORTH_A_POOL: Final = 16 << 20
"""Bytes in all from which starting other processes takes less time than it saves."""
UNKNOWN: Final = "unknown"


def read_all(paths: Sequence[Path], told: Callable[[int], None]) -> list[Imported]:
    """Every file, with those in archives, in the order given. `told` hears how many of `paths` are done."""
    sizes = {path: _size(path) for path in paths}
    cpus = len(os.sched_getaffinity(0))
    if len(paths) < 2 or cpus < 2 or sum(sizes.values()) < WORTH_A_POOL:
        found = []
        for count, path in enumerate(paths, 1):
            found += read_one(path)
            told(count)
        return found
    return _in_parallel(sorted(paths, key=lambda path: -sizes[path]), paths, min(cpus, len(paths)), told)


def _in_parallel(
    jobs: Sequence[Path], paths: Sequence[Path], workers: int, told: Callable[[int], None]
) -> list[Imported]:
    """The largest first. A process that is killed (for its memory, most likely) takes its neighbours' work with it:
    they are read again, one at a time."""
    done: dict[Path, list[Imported]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = {pool.submit(read_one, path): path for path in jobs}
        for future in as_completed(waiting):
            try:
                done[waiting[future]] = future.result()
            except BrokenProcessPool:
                continue
            told(len(done))
    for path in jobs:
        if path not in done:
            done[path] = _alone(path, context)
            told(len(done))
    return [one for path in paths for one in done[path]]


def _alone(path: Path, context: multiprocessing.context.SpawnContext) -> list[Imported]:
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(read_one, path).result()
        except BrokenProcessPool:
            why = "the process that read it was killed; is there memory enough?"
            return [Imported(InputFile(str(path), UNKNOWN, used=False, why_not=why))]


def read_one(path: Path) -> list[Imported]:
    """A file, or each file of an archive."""
    if not path.is_file():  # to open a pipe would wait for somebody to write into it
        return [_unused(str(path), UNKNOWN, "is no regular file")]
    try:
        if is_archive(path):
            return list(_unpacked(path)) or [_unused(str(path), "archive", "is empty")]
    except Unreadable as error:
        return [_unused(str(path), "archive", str(error))]
    return [_read(path, str(path))]


def _unpacked(path: Path) -> Iterator[Imported]:
    try:
        for name, member, why in members(path):
            shown = f"{path}:{name}"
            yield _read(member, shown) if member is not None else _unused(shown, UNKNOWN, why)
    except Unreadable as error:
        yield _unused(str(path), "archive", str(error))


def _read(path: Path, shown: str) -> Imported:
    """Ask the readers that recognise it, the most certain first, until one can use it."""
    try:
        head = head_of(path)
    except Unreadable as error:
        return _unused(shown, UNKNOWN, str(error))
    if not head:
        return _unused(shown, UNKNOWN, "is empty")
    able = [cls for cls in _readers() if _recognises(cls, path, head)]
    failures: list[tuple[str, str]] = []
    for cls in able:
        kept, why = _tables(cls, path, shown)
        if kept:
            return Imported(InputFile(shown, cls.name, used=True, why_not=why), tuple(kept))
        failures.append((cls.name, why or "holds nothing that could be examined"))
    if failures:
        return _unused(shown, *failures[0])
    return _unused(shown, UNKNOWN, "is of no kind that rankscope reads")


def _tables(cls: type[Reader], path: Path, shown: str) -> tuple[list[Kept], str | None]:
    """Digests of what could be read, and why that is not all of it."""
    kept: list[Kept] = []
    try:
        for table in cls().read(path):
            one = digested(replace(table, file=shown))  # a member of an archive has lain in a temporary file
            if one is not None:
                kept.append(one)
    except Unreadable as error:
        return kept, _one_line(str(error))
    except MemoryError:
        return kept, "there is not enough memory to read it"
    except Exception as error:  # noqa: BLE001  a stranger's file must not take the others' report away
        swallow(f"reading {shown} as {cls.name}", error)
        return kept, _one_line(f"could not be read as {cls.name} ({type(error).__name__}: {error})")
    return kept, None


def _recognises(cls: type[Reader], path: Path, head: bytes) -> bool:
    try:
        return cls().recognises(path, head)
    except Exception as error:  # noqa: BLE001  see above
        swallow(f"recognising a file with {cls.name}", error)
        return False


@lru_cache(maxsize=1)
def _readers() -> tuple[type[Reader], ...]:
    return tuple(sorted(load_all(readers, Reader, entry_points=True), key=lambda cls: -cls.certainty))


def _unused(shown: str, kind: str, why: str) -> Imported:
    return Imported(InputFile(shown, kind, used=False, why_not=why))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
