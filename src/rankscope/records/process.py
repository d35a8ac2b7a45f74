"""What one process of a run is: its role, its rank, its surroundings."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields

LOWERED = ", lowered to stay in the budget: "
"""In `Process.level`: what follows has been left out, joined by `and`."""


@dataclass(frozen=True, slots=True)
class Process:
    """Description of a process, written by itself when it begins to train and again when it changes."""

    pid: int
    role: str = "rank"
    """`rank`, `loader-worker`, `launcher` (torchrun, where it fails) or `recorder`."""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    parent: int = 0
    """pid of the parent process: the rank of a loader worker."""
    worker: int = -1
    """Worker id in its loader."""
    host: str = ""
    backend: str = ""
    started_ns: int = 0
    """Monotonic clock when Python started in it."""
    armed_ns: int = 0
    """Monotonic clock when the sources were installed (torch had been imported)."""
    torch_threads: int = 0
    torch_version: str = ""
    torch_folder: str = ""
    """Where torch's files lie; empty: not known."""
    python_folder: str = ""
    """Where Python's standard library lies; empty: not known."""
    python_version: str = ""
    cuda_devices: int = 0
    cpus_allowed: tuple[int, ...] = ()
    argv: tuple[str, ...] = ()
    cwd: str = ""
    parameters: int = 0
    """Parameters (elements) held by the optimizers."""
    level: str = "standard"
    budget: float | None = None
    """Share of the step time that observation may take."""
    sources: tuple[str, ...] = ()
    """Sources that are installed."""
    sources_off: dict[str, str] = field(default_factory=dict)
    """Sources that could not be installed, and why."""

    @property
    def library_folders(self) -> tuple[str, ...]:
        """Folders of code that is not the user's, as far as they are known."""
        return tuple(folder for folder in (self.torch_folder, self.python_folder) if folder)

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def decode_process(text: str) -> Process:
    """The description back from its JSON; fields of a newer version are ignored."""
    raw = json.loads(text)
    known = {f.name for f in fields(Process)}
    for key in ("cpus_allowed", "argv", "sources"):
        if key in raw:
            raw[key] = tuple(raw[key])
    return Process(**{key: value for key, value in raw.items() if key in known})
