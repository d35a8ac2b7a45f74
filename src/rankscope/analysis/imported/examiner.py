"""The seam between imported tables and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rankscope.base.finding import Finding
from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class Shares:
    """How one device trace divides its window (first to last device activity); the four shares add up to 1."""

    file: str
    rank: int | None
    window_us: float
    compute: float
    exposed_communication: float
    exposed_memory: float
    idle: float
    hidden_communication: float | None
    """Of the communication time; None where nothing communicates."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What replays of a job's operations say (OSDI'25): actual time over that without the differences of a group."""

    slowdown: float
    by_rank: dict[int, float]
    by_stage: dict[str, float]
    by_operation: dict[str, float]
    worker_share: float | None
    stage_share: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that one examiner has to say of all files of its kind."""

    findings: tuple[Finding, ...] = ()
    shares: tuple[Shares, ...] = ()
    replayed: Replayed | None = None
    world_size: int | None = None
    """As the files say it; None where they do not."""
    steps: int | None = None
    step_ms: tuple[float, ...] = ()
    """Of all steps on all ranks, where the files have steps."""
    examined: bool = True
    """Whether these files alone allow a verdict: of a list of operators without times none does."""
    not_examined: tuple[tuple[str, str, str], ...] = ()
    """(cause or check, what it needs, why it could not be made)."""
    notes: tuple[str, ...] = ()
    """What the files hold, a line each, where that is worth showing though nothing is wrong with it."""
    unused: dict[str, str] = field(default_factory=dict)
    """File -> why it was left out after all: the same rank twice, a trace of another run."""
    clock_method: str = ""
    clock_error_us: float | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """What is kept of one table, however large its file was: what comparing ranks needs, and no more.

    Subclassed by each examiner; plain data that can be pickled to another process.
    """

    file: str
    rank: int | None


class Examiner:
    """Turns tables of one kind into digests, and all digests of that kind into an answer. Holds no state."""

    reads: ClassVar[type[Table]]

    def digest(self, table: Table) -> Digest:
        """What is to be kept of a table; called in the process that read it, of which there are as many as CPUs."""
        raise NotImplementedError

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        """All files of the kind together. `world_size`: what the user said it is, for files that do not."""
        raise NotImplementedError
