"""The nodes of an execution trace, whichever schema wrote them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from rankscope.artefacts.reader import Unreadable

MOST_BYTES: Final = 1 << 30
"""Unpacked; a trace of a step of a large model has a tenth of that."""
TRIES: Final = 8
"""Of the last places where a cut file could have ended well."""
MOST_NODES: Final = 10_000_000


class Node(msgspec.Struct, gc=False):
    """A node of schema 1.0 (flat) or from 1.0.2 on (`ctrl_deps`, nested inputs and attributes)."""

    id: Any = None
    name: Any = None
    parent: Any = None
    ctrl_deps: Any = None
    inputs: msgspec.Raw = msgspec.Raw(b"null")
    outputs: msgspec.Raw = msgspec.Raw(b"null")
    attrs: msgspec.Raw = msgspec.Raw(b"null")

    def values(self) -> list[Any]:
        """Its inputs."""
        found = _decoded(self.inputs)
        if isinstance(found, dict):
            found = found.get("values")
        return found if isinstance(found, list) else []

    def attributes(self) -> dict[str, Any]:
        """By name; none in flat schemas."""
        found = _decoded(self.attrs)
        if not isinstance(found, list):
            return {}
        return {str(a.get("name")): a.get("value") for a in found if isinstance(a, dict)}


class Trace(msgspec.Struct, gc=False):
    """A whole file."""

    nodes: list[Node]
    schema: Any = None
    pid: Any = None


def decoded(data: bytes) -> tuple[Trace, str]:
    """(the trace, what is wrong with it or nothing). Raises `Unreadable` where nothing can be used."""
    if len(data) > MOST_BYTES:
        raise Unreadable(f"unpacks to more than {MOST_BYTES >> 20} MiB of JSON; record fewer steps")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode()
    try:
        trace, trouble = msgspec.json.decode(data, type=Trace), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        trace, trouble = _cut(data, str(error))
    if len(trace.nodes) > MOST_NODES:
        raise Unreadable(f"has {len(trace.nodes):,} nodes, more than {MOST_NODES:,}; record fewer steps")
    return trace, trouble


def _cut(data: bytes, why: str) -> tuple[Trace, str]:
    """What stands before the end of a file that was cut off: a job that dies leaves its trace like that."""
    at = len(data)
    for _ in range(TRIES):
        at = data.rfind(b"}", 0, at)
        if at < 0:
            break
        for close in (b"]}", b"}]}"):
            try:
                trace = msgspec.json.decode(data[: at + 1] + close, type=Trace)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            if trace.nodes:
                return trace, f"the JSON is broken or cut off after {len(trace.nodes):,} nodes ({why})"
    raise Unreadable(f"the JSON is broken ({why})")


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
