"""What torch.compile did in one process: what it compiled, why again, where it had to stop, and what came out."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.records.imported.table import Table


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A line of Python code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation of one frame, all its attempts together; forward and backward too."""

    autograd: str
    """Number of the compiled autograd graph that it belongs to; empty: of none."""
    frame: int
    """Number of the code object, from 0, in the order in which this process came to them."""
    count: int
    """0: the first compilation of the frame; more: recompilations."""
    attempt: int
    """The last one: it began anew at each graph break or failed assumption before."""
    code: CodePlace | None
    """The function that was compiled, with its first line."""
    caller: CodePlace | None
    """Innermost line outside of torch on the way to it."""
    start_ns: int | None
    """Wall clock."""
    seconds: float | None
    """None: the log ends before the compilation does, or is of a torch that does not say."""
    reasons: tuple[str, ...]
    """Guards that failed, of the newest earlier compilation first; empty of a first one."""
    failure: str
    """`BackendCompilerFailed: ...`; empty: none."""
    suppressed: bool
    """`suppress_errors` was set: after a failure the function runs uncompiled, and nothing is raised."""
    limit: int | None
    """`recompile_limit`, as configured."""
    fx_cache: str
    """`hit`, `miss`, `bypass` of Inductor's cache, of several graphs joined by a comma; empty: not said."""
    autograd_cache: str
    """The same of AOTAutograd's cache."""
    collectives: int
    """Asynchronous collectives that the generated Python code calls."""
    waits: int
    """Calls in it that wait for one."""
    planned: tuple[str, ...] | None
    """Collectives and waits in the order in which the scheduler left them; None: not logged."""

    @property
    def id(self) -> str:
        """As torch writes it: `0/1`, `!2/0/1`."""
        return f"{'!' + self.autograd + '/' if self.autograd else ''}{self.frame}/{self.count}"

    @property
    def graph(self) -> str:
        """As tlparse names it: `-_0_1_0`."""
        return f"{'!' + self.autograd if self.autograd else '-'}_{self.frame}_{self.count}_{self.attempt}"


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A place at which compiled code had to end."""

    place: CodePlace | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLog(Table):
    """One file."""

    compilations: tuple[Compilation, ...]
    breaks: tuple[GraphBreak, ...]
    start_ns: int | None
    """Wall clock of the first event that has one."""
    num_records: int
    num_broken: int
    """Records that could not be read: cut off, mixed with other output, damaged."""
    first_broken_line: int | None
    num_dropped: int
    """Compilations and graph breaks beyond those that are kept."""
