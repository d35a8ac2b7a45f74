"""Structured logs of `torch.compile` (`TORCH_TRACE`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.records.imported.compile_log import Compilation, CompileLog
from rankscope.records.imported.table import Table

_HEADER: Final = re.compile(rb"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] (?:\[rank(\d+)\]:)?\s*(\{.*)$")
_CACHE: Final = re.compile(r"^(fx_graph|aotautograd)_cache_(hit|miss|bypass)$")
LONGEST_LINE: Final = 8 << 20
LONGEST_PAYLOAD: Final = 1 << 20
"""Bytes of a payload that are kept: those that matter here are short."""
MOST: Final = 50_000
"""Compilations of one log."""
KEPT: Final = ("recompile_reasons", "dynamo_error", "inductor_collective_schedule")


@dataclass(slots=True)
class _Open:
    function: str = ""
    file: str = ""
    line: int = 0
    seconds: float | None = None
    reason: str = ""
    error: str = ""
    caches: list[str] = field(default_factory=list)
    schedule: tuple[str, ...] = ()


class TorchTrace(Reader):
    """Logs that `TORCH_TRACE=folder` makes torch 2.3 and newer write, one a rank: a header as of glog, JSON, and a
    payload in lines that begin with a tab. Damaged lines are passed over and counted."""

    name = "torch-trace"
    certainty = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        lines = [line for line in head.splitlines() if not line.startswith(b"\t")][:200]
        return sum(_HEADER.match(line) is not None for line in lines) > len(lines) / 2

    def read(self, path: Path) -> Iterator[Table]:
        found: dict[str, _Open] = {}
        files: dict[int, str] = {}
        rank: int | None = None
        damaged = 0
        keep: tuple[_Open, str] | None = None
        payload: list[bytes] = []
        with opened(path) as stream:
            while line := stream.readline(LONGEST_LINE):
                if line.startswith(b"\t"):
                    if keep is not None and sum(map(len, payload)) < LONGEST_PAYLOAD:
                        payload.append(line[1:])
                    continue
                if keep is not None:
                    damaged += not _take(*keep, b"".join(payload))
                keep, payload = None, []
                header = _HEADER.match(line)
                if header is None:
                    damaged += bool(line.strip())
                    continue
                try:
                    event = json.loads(header[2])
                    if header[1] is not None:
                        rank = int(header[1])
                    if isinstance(event.get("rank"), int):
                        rank = event["rank"]
                    keep = _event(event, found, files)
                except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
                    damaged += 1
        if keep is not None:
            damaged += not _take(*keep, b"".join(payload))
        if not found and not damaged:
            raise Unreadable("holds no line of torch.compile")
        yield CompileLog(
            file=str(path),
            rank=rank if rank is not None else file_rank(path.name),
            compilations=tuple(
                Compilation(
                    id, one.function, one.file, one.line, one.seconds, one.reason, one.error, tuple(one.caches),
                    one.schedule,
                )
                for id, one in found.items()
            ),
            damaged=damaged,
        )


def _event(event: dict[str, Any], found: dict[str, _Open], files: dict[int, str]) -> tuple[_Open, str] | None:
    """Note an event; (compilation, name) where its payload is wanted."""
    if isinstance(event.get("str"), list) and len(event["str"]) == 2:
        files[int(event["str"][1])] = str(event["str"][0])
        return None
    if "frame_id" not in event or len(found) >= MOST:
        return None
    one = found.setdefault(f"{event['frame_id']}/{event.get('frame_compile_id', 0)}", _Open())
    if "dynamo_start" in event:
        _place(one, event["dynamo_start"].get("stack") or [], files)
    elif "compilation_metrics" in event:
        metrics = event["compilation_metrics"]
        one.function = str(metrics.get("co_name") or one.function)
        seconds = metrics.get("entire_frame_compile_time_s")
        one.seconds = float(seconds) if isinstance(seconds, (int, float)) else one.seconds
        one.error = one.error or str(metrics.get("fail_reason") or "").strip().split("\n")[0][:300]
        if not one.line:
            one.file, one.line = str(metrics.get("co_filename") or ""), int(metrics.get("co_firstlineno") or 0)
    elif "artifact" in event:
        name = str(event["artifact"].get("name", ""))
        if _CACHE.match(name):
            one.caches.append(name)
        elif name in KEPT:
            return one, name
    return None


def _place(one: _Open, stack: list[Any], files: dict[int, str]) -> None:
    """The innermost frame that is not torch's own."""
    for frame in reversed(stack):
        name = frame.get("filename")
        file = files.get(name, "") if isinstance(name, int) else str(name)
        if "/torch/" not in file or frame is stack[0]:
            one.file, one.line, one.function = file, int(frame.get("line", 0)), str(frame.get("name", ""))
            return


def _take(one: _Open, name: str, payload: bytes) -> bool:
    """What a payload says; False where it cannot be understood."""
    text = payload.decode("utf-8", "replace").strip()
    if name == "dynamo_error":
        one.error = text.rsplit("\n", 1)[-1].strip()[:300]
        return True
    try:
        listed = json.loads(text)
    except ValueError:
        return False
    if not isinstance(listed, list):
        return False
    texts = [str(item) for item in listed]
    if name == "recompile_reasons":
        one.reason = texts[0][:300] if texts else ""
    else:
        one.schedule = tuple(text.removesuffix(".default").rsplit(".", 1)[-1] for text in texts)
    return True
