"""Collectives of an execution trace: `record_param_comms` of all versions, and the groups that they name."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from rankscope.artefacts.exectrace.nodes import Node
from rankscope.records.imported.execution_trace import CollectiveCall, Group

CALL: Final = "record_param_comms"
GROUPS: Final = "process_group:init"
WAIT: Final = ("wait", "", "init")
"""Recorded the same way, but nothing that ranks do together."""
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter", "send", "recv")
"""Whose `rank` is that of a root or a peer, not the caller's own."""


class Calls:
    """Collects collectives and groups; the rank follows from calls that carry it."""

    def __init__(self) -> None:
        self.calls: list[CollectiveCall] = []
        self.groups: dict[Group, int] = {}
        self.rank: int | None = None

    def group(self, node: Node) -> None:
        """The list of groups, as its own node writes it: JSON in a string."""
        for value in node.values():
            if not isinstance(value, str):
                continue
            try:
                rows = msgspec.json.decode(value)
            except msgspec.DecodeError:
                continue
            for row in rows if isinstance(rows, list) else []:
                if isinstance(row, dict):
                    ranks = [r for r in row.get("ranks") or [] if isinstance(r, int)]
                    size = _whole(row.get("group_size"))
                    stride = ranks[1] - ranks[0] if len(ranks) > 1 else -1
                    first = ranks[0] if ranks else -1
                    self._number(Group(str(row.get("pg_name", "")), str(row.get("pg_desc", "")), first, stride, size))

    def call(self, node: Node, number: int, step: int) -> None:
        """One `record_param_comms`. What it did stands in attributes (schema 1.1), or among its inputs in an order that
        is the same since 1.0: sequence, (group, description), rank, operation, ..., first rank, stride, size."""
        values, attributes = node.values(), node.attributes()
        at = next((i for i, v in enumerate(values) if _is_pair(v)), None)
        before = [v for v in (values[:at] if at is not None else []) if isinstance(v, int) and not isinstance(v, bool)]
        after = values[at + 1 :] if at is not None else values
        operation = attributes.get("collective_name") or next((v for v in after if isinstance(v, str)), "")
        operation = str(operation).lower().removeprefix("c10d::").strip("_")
        if operation in WAIT:
            return
        pair = values[at] if at is not None else ["", ""]
        name = str(attributes.get("pg_name") or pair[0])
        description = str(attributes.get("pg_desc") or pair[1])
        tail = [v for v in values[-3:] if isinstance(v, int)]
        first, stride, size = tail if len(tail) == 3 and at is not None else (-1, -1, -1)
        first = _whole(attributes.get("global_rank_start", first))
        stride = _whole(attributes.get("global_rank_stride", stride))
        size = _whole(attributes.get("pg_size", size))
        own = next((v for v in after if isinstance(v, int)), -1)
        if self.rank is None and min(first, stride) >= 0 and 0 <= own < size and operation not in ROOTED:
            self.rank = first + stride * own
        sizes = _whole(attributes.get("in_msg_nelems")), _whole(attributes.get("out_msg_nelems"))
        if sizes[0] < 0:
            sizes = _elements(values[0] if values else None), -1
        self.calls.append(
            CollectiveCall(
                node=number,
                step=step,
                group=self._number(Group(name, description, first, stride, size)) if name or description else -1,
                sequence=before[-1] if before else -1,
                operation=operation,
                dtype=str(attributes.get("dtype") or ""),
                in_elements=sizes[0],
                out_elements=sizes[1],
            )
        )

    def _number(self, group: Group) -> int:
        return self.groups.setdefault(group, len(self.groups))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else -1


def _elements(value: Any) -> int:
    """Of a tensor as traces write it ([id, storage, offset, elements, size of one, device]), or of a list of them."""
    if isinstance(value, list) and len(value) == 6 and isinstance(value[3], int):
        return value[3]
    if isinstance(value, list) and value and all(isinstance(v, list) for v in value):
        each = [_elements(v) for v in value]
        return sum(each) if min(each) >= 0 else -1
    return -1
