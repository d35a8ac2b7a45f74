"""What `torch.compile` did in one rank: each compilation, why it came about, what the caches said."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class Compilation:
    """One attempt to compile one frame."""

    id: str
    """`0/3`: the frame, and how often it had been compiled before."""
    function: str
    file: str
    line: int
    """Of the innermost frame of the stack, outside of torch where there is one; 0: not recorded."""
    seconds: float | None
    """Of the whole frame; None: not recorded."""
    reason: str
    """The guard that failed, of the newest entry in the cache; empty: this is no compilation again."""
    error: str
    """Last line of what Dynamo raised; empty: nothing."""
    caches: tuple[str, ...]
    """`fx_graph_cache_hit`, `aotautograd_cache_miss`, ..., in their order."""
    schedule: tuple[str, ...]
    """Collectives and waits in the order of the compiled code; empty: none, or not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLog(Table):
    """All compilations of one log, in their order."""

    compilations: tuple[Compilation, ...]
    damaged: int
    """Lines that could not be understood."""
