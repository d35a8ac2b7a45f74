"""Lines that a container runtime or a logger has packed into JSON."""

from __future__ import annotations

import json
from typing import Any, Final

STARTS: Final = ('{"', '{ "')
TEXTS: Final = ("log", "message", "msg", "textPayload", "MESSAGE", "event")
STACKS: Final = ("exc_info", "exception", "traceback", "stack_trace", "stack")
TIMES: Final = ("time", "timestamp", "ts", "asctime", "@timestamp")
MOST_ROWS: Final = 1000


def unwrapped(line: str) -> list[str]:
    """The lines that were written, each with its time and rank in front; the line itself where it is not of this kind.

    Docker packs each line (`{"log": ..., "stream": ...}`); loggers pack a whole traceback into one.
    """
    docker = '"log":' in line and '"stream":' in line
    if not line.startswith(STARTS) or not (docker or "(most recent call last)" in line):
        return [line]
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return [line]
    if not isinstance(found, dict):
        return [line]
    texts = [found[key] for key in (*TEXTS, *STACKS) if isinstance(found.get(key), str)]
    rows = "\n".join(texts).rstrip("\n").split("\n")[:MOST_ROWS]
    front = _front(found)
    return [front + row for row in rows] if texts else [line]


def _front(found: dict[str, Any]) -> str:
    rank = found.get("rank", found.get("global_rank"))
    time = next((found[key] for key in TIMES if isinstance(found.get(key), str)), "")
    return (f"[rank{rank}]: " if type(rank) is int else "") + (f"{time[:40]} " if time else "")
