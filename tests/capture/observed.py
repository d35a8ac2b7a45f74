"""Real programs under observation without a recorder, and what they wrote into their rings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rankscope
from rankscope.recorder.ring_reader import RingReader
from rankscope.records.inventory import Inventory, decode_inventory
from rankscope.records.kinds import KINDS
from rankscope.records.payload import INVENTORY, NAME, PROCESS, STACK
from rankscope.records.process import Process, decode_process
from rankscope.records.record import sources, unpack

PROGRAMS = Path(__file__).parent / "programs"
SITE = Path(rankscope.__file__).parent / "capture" / "site"
NAME_FIELDS = {
    "site", "shape", "model", "group", "class_name", "detail", "reason", "exception",
    "function", "table", "place", "dataset",
}  # fmt: skip


@dataclass
class Seen:
    """What one process wrote: records in program order with names in place of ids."""

    process: Process
    records: list[SimpleNamespace]
    stacks: dict[int, list[str]]
    lost: int
    goodbye: bool
    inventories: list[Inventory]

    def of(self, kind: str, name: str | None = None, between: tuple[int, int] | None = None) -> list[SimpleNamespace]:
        """Records of one kind, of one name, that ended between two moments."""
        return [
            r
            for r in self.records
            if r.kind == kind
            and (name is None or r.name == name)
            and (between is None or between[0] <= r.time_ns + r.duration_ns < between[1])
        ]


@dataclass
class Run:
    """A finished program: what it printed (one JSON object a line that starts with `{`), and what was seen."""

    code: int
    output: str
    errors: str
    seen: list[Seen]

    @property
    def ranks(self) -> list[Seen]:
        return sorted((s for s in self.seen if s.process.role == "rank"), key=lambda s: (s.process.rank, s.process.pid))

    @property
    def workers(self) -> list[Seen]:
        return [s for s in self.seen if s.process.role == "loader-worker"]

    @property
    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line[line.index("{") :]) for line in self.output.splitlines() if "{" in line]

    def section(self, name: str, rank: int = 0) -> tuple[int, int]:
        """Begin and end of a part of the program that it announced itself."""
        (found,) = [s for s in self.said if s.get("section") == name and s.get("rank", 0) == rank]
        return found["begin"], found["end"]


def observe(folder: Path, *command: str, level: str = "standard", env: dict[str, str] | None = None) -> Run:
    """Run a Python command under observation; rings lie in `folder`."""
    return finish(start(folder, *command, level=level, env=env), folder)


def start(
    folder: Path, *command: str, level: str = "standard", env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    rings = folder / "rings"
    rings.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "RANKSCOPE_RUN_DIR": str(folder),
        "RANKSCOPE_LEVEL": level,
        "RANKSCOPE_DEBUG": "1",
        "OMP_NUM_THREADS": "1",
        **(env or {}),
    }
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def observe_ranks(folder: Path, *command: str, size: int = 2, env: dict[str, str] | None = None) -> Run:
    """The same command as `size` ranks of one group, started by nobody's launcher."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size), **(env or {})}
    children = [start(folder, *command, env={**common, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(size)]
    parts = [finish(child, None) for child in children]
    return Run(
        max(p.code for p in parts), "".join(p.output for p in parts), "".join(p.errors for p in parts), read(folder)
    )


def finish(child: subprocess.Popen[str], folder: Path | None) -> Run:
    output, errors = child.communicate(timeout=100)
    return Run(child.returncode, output, errors, read(folder) if folder else [])


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def read(folder: Path) -> list[Seen]:
    """Everything in the rings below a folder, by start of the process."""
    found = [read_ring(path) for path in folder.rglob("*.ring")]
    return sorted(found, key=lambda s: s.process.started_ns)


def read_ring(path: Path) -> Seen:
    reader = RingReader(path)
    payloads = reader.payloads(0)
    names = {p.id: p.text for p in payloads if p.kind == NAME}
    news, lost = reader.read()
    records = [_record(row, lane, names) for lane, rows in news for row in rows]
    stacks = {p.id: [names[int(x)] for x in p.text.split()] for p in payloads if p.kind == STACK}
    described = [p.text for p in payloads if p.kind == PROCESS]
    inventories = [decode_inventory(p.text) for p in payloads if p.kind == INVENTORY]
    seen = Seen(decode_process(described[-1]), records, stacks, lost, reader.said_goodbye, inventories)
    reader.close()
    return seen


def _record(row: Any, lane: int, names: dict[int, str]) -> SimpleNamespace:
    kind = KINDS[int(row["kind"])]
    values: dict[str, Any] = {}
    for name, source in sources(kind).items():
        if name == "process":
            continue
        value = unpack(int(row[source.word]), source)
        values[name] = names.get(int(value), "") if source.is_name or name in NAME_FIELDS else value
    return SimpleNamespace(kind=kind.kind, lane=lane, **values)
