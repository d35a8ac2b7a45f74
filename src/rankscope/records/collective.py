"""Communication as one rank saw it; the same collective on every rank has the same group and sequence number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.record import Record, field


@dataclass(frozen=True, slots=True)
class Collective(Record):
    """One call into a communication operation: from the call to its return (enqueued, not completed)."""

    code: ClassVar[int] = 30
    kind: ClassVar[str] = "collective"
    name: str = field("name", "", "operation", is_name=True, bits=16)
    group: int = field("a", "", "name id of the process group", shift=48, bits=15)
    sequence: int = field("a", "", "count of collectives in this group on this rank", bits=48)
    bytes: int = field("b", "bytes", "bytes of the input tensors")
    site: int = field("c", "", "name id of the call-site", bits=16)
    shape: int = field("c", "", "name id of dtype and shapes", shift=16, bits=16)
    elements: int = field("c", "count", "elements of the input tensors, at most 2^24-1", shift=32, bits=24)
    in_backward: int = field("c", "", "1: enqueued while backward ran", shift=56, bits=1)
    point_to_point: int = field("c", "", "1: send or receive", shift=57, bits=1)


@dataclass(frozen=True, slots=True)
class PendingCollective(Record):
    """A call that had not returned when the rank came to a stop or to its end: the fields of `Collective`."""

    code: ClassVar[int] = 33
    kind: ClassVar[str] = "pending_collective"
    name: str = field("name", "", "operation", is_name=True, bits=16)
    group: int = field("a", "", "name id of the process group", shift=48, bits=15)
    sequence: int = field("a", "", "count of collectives in this group on this rank", bits=48)
    bytes: int = field("b", "bytes", "bytes of the input tensors")
    site: int = field("c", "", "name id of the call-site", bits=16)
    shape: int = field("c", "", "name id of dtype and shapes", shift=16, bits=16)
    elements: int = field("c", "count", "elements of the input tensors, at most 2^24-1", shift=32, bits=24)
    in_backward: int = field("c", "", "1: enqueued while backward ran", shift=56, bits=1)
    point_to_point: int = field("c", "", "1: send or receive", shift=57, bits=1)


@dataclass(frozen=True, slots=True)
class CommunicationWait(Record):
    """The rank's thread blocked until communication was complete."""

    code: ClassVar[int] = 31
    kind: ClassVar[str] = "communication_wait"
    name: str = field("name", "", "what waited", is_name=True, bits=16)
    group: int = field("a", "", "name id of the process group of the last collective before", shift=48, bits=15)
    sequence: int = field("a", "", "sequence number of the last collective before", bits=48)
    site: int = field("c", "", "name id of the call-site", bits=16)


@dataclass(frozen=True, slots=True)
class CommunicationCode(Record):
    """User code that ran as a part of communication: a DDP communication hook."""

    code: ClassVar[int] = 32
    kind: ClassVar[str] = "communication_code"
    name: str = field("name", "", "function and place", is_name=True, bits=16)
    bytes: int = field("b", "bytes", "bytes of the bucket")
