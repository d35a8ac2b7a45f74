"""Device traces from files of other tools, one at a time: read once, kept on disk, taken back when it is their turn."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from rankscope.analysis.imported.device_traces.digest import TraceDigest, digest_of
from rankscope.analysis.imported.examination import Kept, digested
from rankscope.artefacts import readers
from rankscope.artefacts.opening import head_of, is_archive, members
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.base.guard import swallow
from rankscope.base.plugins import load_all
from rankscope.records.imported.device_trace import ANNOTATION, DEVICE_ANNOTATION, DeviceTrace
from rankscope.report.timeline.parts import Ints

SAMPLE: Final = 4_096
"""Starts of spans that are kept of each trace, evenly over all of them, to choose a window by."""
STEP: Final = "ProfilerStep#"
ANY_TEXT: Final = 0
"""`Reader.certainty` of those that take any text: logs."""


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """What is known of a trace while its spans lie on disk. Times are as the file has them."""

    file: str
    rank: int | None
    stored: Path
    kept: Kept | None
    digest: TraceDigest
    step_number: Ints
    step_begin_ns: Ints
    step_end_ns: Ints
    starts_ns: Ints
    """Of some of its spans."""
    weight: int
    """How many spans each of them stands for."""

    def spans(self) -> DeviceTrace:
        """All of it."""
        with self.stored.open("rb") as stream:
            trace: DeviceTrace = pickle.load(stream)  # our own file, in a folder that only this user may enter
        return trace


def read_traces(paths: Sequence[Path], folder: Path) -> Iterator[ReadTrace | tuple[str, str]]:
    """Every trace in the files and archives, or (file, why it is none). `folder`: where their spans are kept.

    Raises OSError where there is no room for them.
    """
    number = 0
    for path in paths:
        for found in _traces(path):
            if isinstance(found, DeviceTrace):
                number += 1
                yield _kept(found, folder / f"{number}")
            else:
                yield found


def _traces(path: Path) -> Iterator[DeviceTrace | tuple[str, str]]:
    try:
        if not is_archive(path):
            yield from _of_file(path, str(path))
            return
        for name, member, why in members(path):
            shown = f"{path}:{name}"
            if member is None:
                yield shown, why
            else:
                yield from _of_file(member, shown)
    except Unreadable as error:
        yield str(path), str(error)


def _of_file(path: Path, shown: str) -> Iterator[DeviceTrace | tuple[str, str]]:
    """Its traces, as the most certain reader that can use it finds them."""
    if not path.is_file():
        yield shown, "is no regular file"
        return
    why = "is no trace of torch.profiler"
    try:
        head = head_of(path)
    except Unreadable as error:
        yield shown, str(error)
        return
    for cls in sorted(load_all(readers, Reader, entry_points=True), key=lambda cls: -cls.certainty):
        if cls.certainty == ANY_TEXT:
            break
        used = False
        try:
            if not cls().recognises(path, head):
                continue
            for table in cls().read(path):
                if not isinstance(table, DeviceTrace):
                    why = f"is a {cls.name}, of which there is no timeline"
                    break
                used = True
                yield replace(table, file=shown)
            if used:
                return
        except Unreadable as error:
            why = str(error)
            if used:
                yield shown, f"was read in part only: {why}"
                return
        except Exception as error:  # noqa: BLE001  a stranger's file must not take the others' timeline away
            swallow(f"reading {shown} as {cls.name}", error)
            why = f"could not be read as {cls.name} ({type(error).__name__}: {error})"
    yield shown, why


def _kept(trace: DeviceTrace, stored: Path) -> ReadTrace | tuple[str, str]:
    with stored.open("wb") as stream:
        pickle.dump(trace, stream, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        kept = digested(trace)
        digest = kept.digest if kept is not None and isinstance(kept.digest, TraceDigest) else digest_of(trace)
    except Exception as error:  # noqa: BLE001  see above
        swallow(f"examining {trace.file}", error)
        return trace.file, f"could not be examined ({type(error).__name__}: {error})"
    number, begin, end = _steps(trace)
    starts = np.sort(trace.start_ns)
    every = max(1, -(-len(starts) // SAMPLE))
    return ReadTrace(
        trace.file, trace.rank, stored, kept, digest, number, begin, end, starts[every - 1 :: every], every
    )


def _steps(trace: DeviceTrace) -> tuple[Ints, Ints, Ints]:
    """(numbers, begins, ends) of the profiler's steps, host and device together."""
    named = {
        at: int(name.removeprefix(STEP))
        for at, name in enumerate(trace.names)
        if name.startswith(STEP) and name.removeprefix(STEP).isascii() and name.removeprefix(STEP).isdigit()
    }
    rows = np.flatnonzero(
        np.isin(trace.name, list(named)) & np.isin(trace.category, (ANNOTATION, DEVICE_ANNOTATION))
    )
    number = np.array([named[at] for at in trace.name[rows].tolist()], np.int64)
    start = trace.start_ns[rows]
    return number, start, start + trace.duration_ns[rows]
