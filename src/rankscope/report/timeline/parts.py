"""What a timeline consists of: tracks, and batches of what is drawn on them, as plain columns.

A timeline is a stream of `Part`s. A track comes before everything that is drawn on it; apart from that any order will
do. All times are ns on one clock that begins near 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]

STARTS, GOES_ON, ENDS = 1, 2, 3
"""`Flow.role`: where a flow begins, passes through and ends; 0: the row has none."""


@dataclass(frozen=True, slots=True)
class Process:
    """What makes a track the head of a process."""

    pid: int
    """Different for each process of a timeline, and above 0."""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Track:
    """One line of the picture, or the head of several."""

    id: int
    name: str
    parent: int = 0
    """Id of the track it stands under; 0: it stands by itself."""
    order: int = 0
    """Among those under the same parent."""
    process: Process | None = None
    unit: str | None = None
    """Of a counter; None: slices are drawn on it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One argument of many slices."""

    name: str
    values: Ints | Floats
    """[row] the value, finite; with `texts` its position there."""
    texts: tuple[str, ...] | None = None
    there: Mask | None = None
    """[row] whether the row has it; None: all have."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Joins slices of different tracks: those with one id, in the order of time."""

    id: Ints
    """[row]"""
    role: NDArray[np.int8]
    """[row] `STARTS`, `GOES_ON`, `ENDS` or 0."""


@dataclass(frozen=True, slots=True)
class Slices:
    """What happened on one track for a while.

    A writer gets them sorted by start, the longer first where they start together, and any two of them either nest or
    do not touch (`nesting.drawn` sees to that).
    """

    track: int
    start_ns: Ints
    end_ns: Ints
    name: Ints
    """[row] position in `names`."""
    category: Ints
    """[row] position in `names`."""
    names: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments on one track, in the order of time."""

    track: int
    time_ns: Ints
    name: Ints
    category: Ints
    names: tuple[str, ...]
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Readings:
    """Values of one counter, in the order of time; each holds until the next one."""

    track: int
    time_ns: Ints
    value: Floats
    """Finite."""


Part: TypeAlias = Track | Slices | Marks | Readings
