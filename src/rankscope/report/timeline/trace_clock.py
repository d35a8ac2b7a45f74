"""Traces of several ranks on one clock, as far as their collectives allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.imported.device_traces.clocks import clocks_of
from rankscope.analysis.imported.device_traces.digest import TraceDigest
from rankscope.analysis.imported.device_traces.matching import Matched
from rankscope.report.report import Clock


@dataclass(frozen=True, slots=True)
class TraceClock:
    """What to take off each trace's times, and what is known of the result."""

    offset_ns: tuple[int, ...]
    clock: Clock


def trace_clock(digests: Sequence[TraceDigest], groups: Sequence[Matched]) -> TraceClock:
    """By collectives, where they tie all traces together; else the times as they are; and where these have nothing to
    do with each other, each trace from its own begin."""
    if len(digests) == 1:
        return TraceClock((0,), Clock("one trace", 0.0))
    found = clocks_of(groups)
    if found is not None and len(found.offset_ns) == len(digests):
        offsets = tuple(found.offset_ns[position] for position in range(len(digests)))
        calls = max(group.start.shape[1] for group in groups)
        return TraceClock(offsets, Clock(f"{calls} matched collectives", found.error_ns / 1e3))
    first, last = max(one.first_ns for one in digests), min(one.last_ns for one in digests)
    if all(one.wall_clock for one in digests) and first < last:
        method = "the machines' own clocks as they are; their collectives could not be matched"
        return TraceClock((0,) * len(digests), Clock(method, None))
    begins = np.array([one.first_ns for one in digests], np.int64)
    return TraceClock(
        tuple((begins - begins.min()).tolist()), Clock("nothing ties them together; each begins at 0", None)
    )
