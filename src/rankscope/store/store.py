"""The seam between whoever has records and whatever keeps them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankscope.records.payload import Payload
from rankscope.records.slot import ROW_BYTES, check_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from typing_extensions import Self

Params = Mapping[str, int | float | str]
"""Values of `{name:Type}` in a query."""


class StoreError(RuntimeError):
    """The engine behind a store refused; the message is the engine's, in one line."""


def in_words(text: str) -> str:
    """What ClickHouse says, without its error codes and without where in its own code it happened."""
    said = text.rpartition("DB::Exception: ")[2] or text
    said = said.split(": While ")[0].split(": (while ")[0].split(" (version ")[0].split("\n")[0]
    return re.sub(r"\.? \([A-Z_]+\)$", "", said.strip()).rstrip(".: ")


@dataclass(frozen=True, slots=True)
class Batch:
    """What one node hands over at once. Numbers of a node rise; each stands for one content for ever."""

    number: int
    node: int
    rows: bytes = b""
    """Rows of `records.slot.ROW_FIELDS`, end to end, all of this node."""
    payloads: tuple[Payload, ...] = ()

    def __post_init__(self) -> None:
        check_rows(self.rows, f"batch {self.number}")

    @property
    def num_rows(self) -> int:
        return len(self.rows) // ROW_BYTES


class Store(ABC):
    """Tables of one or many runs, in ClickHouse's SQL. See `store.schema` for what can be asked.

    A store is a context manager; leaving it closes what is open.
    """

    @abstractmethod
    def append(self, batch: Batch) -> int:
        """Commit a batch and give back the highest committed number of its node.

        A batch whose number is not above it has been committed before and is not stored twice, also when an
        earlier attempt ended half-way, in this process or in one that was killed.
        """

    @abstractmethod
    def query(self, sql: str, params: Params | None = None) -> pa.Table:
        """The rows of one SELECT. Raises StoreError with the engine's words when the engine refuses."""

    @abstractmethod
    def migrate(self, profile: str = "embedded") -> None:
        """Create the tables, or bring those of an older version up to date. Needed once before all else.

        `profile` is `embedded`, `server` or `cluster`; only the ENGINE clauses of the tables differ.
        """

    def close(self) -> None:  # noqa: B027 - most stores have nothing to close
        """Let go of files and connections. The store cannot be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
