"""PyTorch execution traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import numpy as np

from rankscope.artefacts.exectrace.calls import CALL, GROUPS, Calls
from rankscope.artefacts.exectrace.nodes import MOST_BYTES, Node, Trace, decoded
from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported import execution_trace as table
from rankscope.records.imported.table import Table

_SCHEMA: Final = re.compile(rb'"schema"\s*:\s*"\d+\.\d+')
_NODES: Final = re.compile(rb'"nodes"\s*:\s*\[')
_STEP: Final = re.compile(r"ProfilerStep#(\d+)$")
_LOOP: Final = re.compile(r"## LOOP (\d+) ##$")


class ExecutionTrace(Reader):
    """`torch.profiler.ExecutionTraceObserver` (et.json, PyTorch 1.13 to 2.13), schemas 1.0 (flat nodes) to 1.1 (nested,
    also "chakra"), of one rank."""

    name: ClassVar[str] = "execution trace"
    certainty: ClassVar[int] = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            head = head.decode("utf-16", "replace").encode("utf-8", "replace")
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        return text.startswith(b"{") and _SCHEMA.search(text) is not None and _NODES.search(text) is not None

    def read(self, path: Path) -> Iterator[Table]:
        with opened(path) as stream:
            data = stream.read(MOST_BYTES + 1)
        trace, trouble = decoded(data)
        del data
        nodes = [n for n in trace.nodes if _is_number(n.id) and isinstance(n.name, str)]
        if not nodes:
            raise Unreadable("holds no node that has an id and a name")
        nodes.sort(key=lambda n: n.id)
        yield _trace(path, nodes, trace, complete=not trouble)
        if trouble:
            raise Unreadable(f"{trouble}; what stands before was used")


def _trace(path: Path, nodes: list[Node], whole: Trace, complete: bool) -> table.ExecutionTrace:
    names: dict[str, int] = {}
    name = np.array([names.setdefault(n.name, len(names)) for n in nodes], np.int32)
    ids = np.array([n.id for n in nodes], np.int64)
    parents = np.array([_parent(n) for n in nodes], np.int64)
    marks = _marks(nodes, _STEP) or _marks(nodes, _LOOP)
    calls, step = Calls(), -1
    steps = dict(marks)
    tensors: set[int] = set()
    storages: dict[int, int] = {}
    for n in nodes:
        step = steps.get(n.id, step)
        if n.name == CALL:
            calls.call(n, n.id, step)
        elif GROUPS in n.name:
            calls.group(n)
        for raw in (n.inputs, n.outputs):
            _tensors(raw, tensors, storages)
    return table.ExecutionTrace(
        file=str(path),
        rank=calls.rank if calls.rank is not None else file_rank(str(path)),
        node=ids,
        parent=parents,
        name=name,
        names=tuple(names),
        step_node=np.array([node for node, _ in marks], np.int64),
        step_number=np.array([number for _, number in marks], np.int64),
        collectives=tuple(calls.calls),
        groups=tuple(calls.groups),
        tensors=len(tensors),
        tensor_bytes=sum(storages.values()),
        schema=str(whole.schema or ""),
        process_id=whole.pid if isinstance(whole.pid, int) else -1,
        dropped=len(whole.nodes) - len(nodes),
        complete=complete,
    )


def _marks(nodes: list[Node], pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    """(node, step) of each mark; the same step is marked again in other threads."""
    found: dict[int, int] = {}
    for n in nodes:
        match = pattern.match(n.name)
        if match and len(match[1]) < 16:
            found.setdefault(int(match[1]), n.id)
    return sorted((node, number) for number, node in found.items())


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _parent(node: Node) -> int:
    value = node.ctrl_deps if node.ctrl_deps is not None else node.parent
    return value if isinstance(value, int) and _is_number(value) else -1


def _tensors(raw: msgspec.Raw, tensors: set[int], storages: dict[int, int]) -> None:
    """Tensors that stand directly among inputs or outputs: [id, storage, offset, elements, bytes of one, device]."""
    if len(raw) < 16:
        return
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return
    values = found.get("values") if isinstance(found, dict) else found
    for value in values if isinstance(values, list) else []:
        if isinstance(value, list) and len(value) == 6 and all(_is_number(part) for part in value[:5]):
            tensors.add(value[0])
            size = value[3] * value[4]
            if size < 1 << 50:
                storages[value[1]] = max(storages.get(value[1], 0), size)
