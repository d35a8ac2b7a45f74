"""An exception that comes out of a dataset: for which sample, and in which line."""

from __future__ import annotations

from functools import partial
from time import monotonic_ns
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from rankscope.records.batches import SampleError

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MOST_ERRORS: Final = 200
"""Errors of a process that are written: more of them say nothing new."""


def note_error(agent: Agent, fetcher: Any, indices: Any, error: Exception, dataset: int) -> bool:
    """Write an exception that came out of a fetch, unless making a batch of the samples raised it; whether it was."""
    if isinstance(error, StopIteration):
        return False
    frames = list(_frames(error.__traceback__))
    at = next((i for i, frame in enumerate(frames) if frame.f_code.co_filename.endswith("_utils/fetch.py")), None)
    if at is None:
        return False
    inner = frames[at]
    # Before Python 3.12 the comprehension over the indices has a frame of its own.
    if at + 1 < len(frames) and frames[at + 1].f_code.co_filename == inner.f_code.co_filename:
        at += 1
        inner = frames[at]
    below = frames[at + 1].f_code if at + 1 < len(frames) else None
    if below is None or below in _codes(fetcher.collate_fn):
        return False
    index, exact = _index(inner, indices)
    position = indices.index(index) if exact and isinstance(indices, list) and index in indices else 0
    text = agent.name(f"{type(error).__name__}: {error}"[:500])
    site = agent.raising_site(error.__traceback__)
    b = site | dataset << 16 | min(agent.step, (1 << 31) - 1) << 32
    c = agent.worker + 1 | exact << 16 | min(position, (1 << 20) - 1) << 17
    agent.put(monotonic_ns(), 0, SampleError.code, text, agent.step, index, b, c)
    return True


def _frames(trace: TracebackType | None) -> Any:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _codes(collate: Any) -> tuple[Any, ...]:
    """The code of a collate function, however it is given."""
    while isinstance(collate, partial):
        collate = collate.func
    candidates = (collate, getattr(collate, "__func__", None), vars(type(collate)).get("__call__"))
    return tuple(code for one in candidates if (code := getattr(one, "__code__", None)) is not None)


def _index(frame: FrameType, indices: Any) -> tuple[int, bool]:
    """(index, whether it is the sample's own): the one that the fetcher was at, else the first of the batch."""
    found = frame.f_locals.get("idx")
    exact = found is not None and hasattr(type(found), "__index__")
    if not exact:
        exact = not isinstance(indices, list)
        found = indices if exact else next(iter(indices), None)
    if found is None or not hasattr(type(found), "__index__"):
        return -1, False
    return int(found), exact
