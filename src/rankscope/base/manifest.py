"""`run.json`: what a run is, written when it starts and again when it ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rankscope.base.clock import now_ns
from rankscope.base.errors import UserError
from rankscope.base.rundir import RunDir, working_folder
from rankscope.base.version import VERSION


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the command, of a run that was started again or whose hang was ended."""

    number: int
    """1 is the first."""
    started_ns: int
    """Monotonic clock just before the start."""
    ended_ns: int | None = None
    exit_code: int | None = None
    """As in the manifest."""
    why: str = ""
    """Why it ended: `done`, `failure`, `hang` or `interrupted`; empty while it goes on."""
    stopped_ns: int = 0
    """When we began to end it because of a hang; 0: we did not."""


@dataclass(frozen=True, slots=True)
class Manifest:
    id: str
    name: str
    command: tuple[str, ...]
    started: str
    """UTC, ISO 8601."""
    started_ns: int = 0
    """Monotonic clock at that moment."""
    cwd: str = ""
    host: str = ""
    cpus: int = 0
    """CPUs that the run may use."""
    level: str = "standard"
    budget: float = 0.01
    version: str = ""
    finished: bool = False
    duration_s: float | None = None
    exit_code: int | None = None
    """Exit code of the command; negative: the signal that ended it. None while it runs or where nobody saw its end."""
    recorder_restarts: int = 0
    unobserved: str = ""
    """Why no process of the run could be observed, if none was."""
    attempts: tuple[Attempt, ...] = ()
    """Empty of a run that was started once and ended by itself."""


def new_manifest(id: str, name: str | None, command: Sequence[str], level: str, budget: float) -> Manifest:
    """The manifest of a run that begins now, here."""
    return Manifest(
        id=id, name=readable(name or id), command=tuple(map(readable, command)),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), started_ns=now_ns(),
        cwd=working_folder(), host=os.uname().nodename, cpus=len(os.sched_getaffinity(0)),
        level=level, budget=budget, version=VERSION,
    )  # fmt: skip


def readable(text: str) -> str:
    """Text that can be written as UTF-8: bytes of an argument that are none are shown as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def write_manifest(run: RunDir, manifest: Manifest) -> None:
    """Write `run.json` whole or not at all. Raises OSError."""
    temporary = run.manifest.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
    os.replace(temporary, run.manifest)


def read_manifest(path: Path) -> Manifest:
    """The manifest of a run folder. Raises UserError where it is no run of ours or cannot be read."""
    file = path / "run.json"
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no run folder of rankscope (it has no run.json); see `rankscope runs`") from error
    except PermissionError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}); check the permissions") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: damaged or not of rankscope ({error})") from error
    known = {f.name for f in fields(Manifest)}
    try:
        raw["command"] = tuple(raw["command"])
        raw["attempts"] = tuple(Attempt(**attempt) for attempt in raw.get("attempts", ()))
        return Manifest(**{key: value for key, value in raw.items() if key in known})
    except (KeyError, TypeError) as error:
        raise UserError(f"{file}: is JSON but no manifest of rankscope ({error})") from error
