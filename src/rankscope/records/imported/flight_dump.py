"""One rank's Flight Recorder dump: its newest communication operations, and how far each group has come."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """One operation, as the rank enqueued it."""

    group: str
    """Name of the process group."""
    sequence: int
    """Counts the collectives of the group; of point-to-point operations, those of the pair's group."""
    operation: str
    """`all_reduce`; of point-to-point operations with its direction, `send 0->1`, in ranks of the group."""
    point_to_point: bool
    input_sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    finished: bool
    created_ns: int
    """Wall clock; 0: not recorded."""
    site: str
    """`file.py:12:function` of the innermost frame outside of torch; empty: not recorded."""


@dataclass(frozen=True, slots=True)
class FlightGroup:
    """A process group, as this rank knows it."""

    name: str
    description: str
    ranks: tuple[int, ...]
    """Global ranks; empty: not said."""
    last_enqueued: int
    """-1: not known."""
    last_completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightDump(Table):
    """Everything of one dump. Finished operations may be left out of it."""

    version: str
    entries: tuple[FlightEntry, ...]
    """In the order in which they were enqueued."""
    groups: tuple[FlightGroup, ...]
