"""What is taken from an event of a trace; all else is skipped without becoming an object."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

Number = int | float | str | None
"""What versions disagree about: `7`, `"7"`, `"0x7"`, `null`."""


class Args(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "external": "External id",
        "external_old": "external id",
        "blocks": "blocks per SM",
        "occupancy": "est. achieved occupancy %",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "python_id": "Python id",
        "python_parent": "Python parent id",
        "stack": "Call stack",
        "module": "Module Hierarchy",
        "sync_stream": "wait_on_stream",
        "sync_record": "wait_on_cuda_event_record_corr_id",
        "operation": "Collective name",
        "elements_in": "In msg nelems",
        "elements_out": "Out msg nelems",
        "group_size": "Group size",
        "group": "Process Group Name",
        "ranks": "Process Group Ranks",
        "number": "Seq",
    },
):
    """Arguments of a span. In the order in which they mostly come: msgspec looks for the next one first."""

    external: Number = -1
    correlation: Number = -1
    blocks: float | str | None = None
    occupancy: float | str | None = None
    sequence: Number = -1
    forward_thread: Number = 0
    bytes: Number = -1
    python_parent: Number = -1
    python_id: Number = -1
    operation: str | None = None
    elements_in: Number = -1
    elements_out: Number = -1
    group_size: Number = -1
    dtype: str | None = None
    group: str | int | None = None
    ranks: str | list[int] | None = None
    number: Number = -1
    external_old: Number = -1
    stack: str | None = None
    module: str | None = None
    sync_stream: Number = -1
    sync_record: Number = -1


NO_ARGS: Final = Args()


class Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event."""

    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    args: Args | None = NO_ARGS


class ExactSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """The same where time stamps have more digits than a float holds: fractions of µs since the epoch (PyTorch 2.2)."""

    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Decimal | None = None
    dur: float | None = None
    cat: str | None = None
    args: Args | None = NO_ARGS


class MemoryArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "bytes": "Bytes",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
        "device_type": "Device Type",
        "device": "Device Id",
    },
):
    """Arguments of a memory event."""

    bytes: Number = None
    allocated: Number = -1
    reserved: Number = -1
    device_type: Number = 0
    device: Number = -1


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event without duration; those of memory are named `[memory]`."""

    name: str = ""
    ts: float | None = None
    args: MemoryArgs | None = None


class MetaArgs(msgspec.Struct, gc=False):
    """What a process or thread is called."""

    name: str | int | None = None
    labels: str | None = None


class Meta(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """Names a process or thread."""

    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    args: MetaArgs | None = None


# All other phases of the format: of no use here, and so skipped as fast as can be.
_OTHER_PHASES: Final = tuple("stfCBEIbenNODPSTpFRcvV()")
_SKIPPED: Final = tuple(
    msgspec.defstruct(f"Skipped{number}", [], gc=False, tag_field="ph", tag=phase)
    for number, phase in enumerate(_OTHER_PHASES)
)

Event = Span | ExactSpan | Instant | Meta


def decoder(exact: bool) -> msgspec.json.Decoder[list[Any]]:
    """Of a list of events; `exact`: without rounding time stamps."""
    known: Any = Instant | Meta
    known |= ExactSpan if exact else Span
    for cls in _SKIPPED:
        known |= cls
    return msgspec.json.Decoder(list[known])


class _Counted(msgspec.Struct, gc=False):
    """Counters of a profiler range have arguments of any name."""

    ts: float | None = None
    cat: str | None = None
    name: str = ""
    args: dict[str, Any] | None = None


COUNTED: Final = msgspec.json.Decoder(list[_Counted])


def lenient(value: object, exact: bool) -> Event | None:
    """An event out of one that has other types than it should; None where nothing can be made of it."""
    if not isinstance(value, dict):
        return None
    kind: Any = {"X": ExactSpan if exact else Span, "i": Instant, "M": Meta}.get(str(value.get("ph")))
    if kind is None:
        return None
    for candidate in (value, {key: part for key, part in value.items() if key != "args"}):
        try:
            return msgspec.convert(candidate, kind, strict=False)  # type: ignore[no-any-return]
        except (msgspec.ValidationError, ValueError, OverflowError):
            continue
    return None
