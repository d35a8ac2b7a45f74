"""Stacks that py-spy or faulthandler wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rankscope.artefacts.file_rank import file_rank, named_rank
from rankscope.artefacts.logs.prefixes import split
from rankscope.artefacts.opening import opened
from rankscope.artefacts.reader import Reader, Unreadable
from rankscope.artefacts.stacks.builder import Threads
from rankscope.records.imported.stack_dump import StackDump
from rankscope.records.imported.table import Table

LARGEST: Final = 1 << 30
LONGEST: Final = 1 << 16
_SPY_THREAD: Final = re.compile(r'^\s*Thread (?:0x)?[0-9A-Fa-f]+(?: \(([^)]*)\))?(?:: "(.*)")?\s*$')
_SPY_FRAME: Final = re.compile(r"^\s{2,}(\S.*?) \(([^()]*?)(?::(\d+))?\)\s*$")
_PROCESS: Final = re.compile(r"^\s*Process (\d+): ?(.*)$")
_THREAD: Final = re.compile(
    r"^(Current thread|Thread) 0x[0-9A-Fa-f]+ ?(?:\[(.*?)\])? ?\(most recent call first\):\s*(<no Python frame>)?"
)
_FRAME: Final = re.compile(r'^\s*File "([^"]{1,1000})", line (\d+|\?\?\?) in (.{1,300}?)\s*$')
_FATAL: Final = re.compile(r"^(?:Fatal Python error: (.*)|Timeout \(\S+\)!|Windows fatal exception: (.*))")
_RANK: Final = re.compile(r"(?<!local[_ -])(?<!local)(?<!node[_ -])(?<![a-z])(?:global[_ "
                          r"-]?)?rank[\"'\s_:=#-]{0,4}(\d{1,6})\b", re.IGNORECASE)
_LOCAL: Final = re.compile(r"local[_ -]?rank[\"'\s_:=#-]{0,4}(\d{1,6})\b", re.IGNORECASE)
_START_OF_JSON: Final = re.compile(rb"\s*(?:\[\s*(?:[\[{\]]|$)|\{\s*(?:\"|$))")
_JSON: Final = re.compile(rb'"(?:thread_id|os_thread_id|owns_gil|frames)"')


class StackDumps(Reader):
    """`py-spy dump` as text and with `--json` (since 0.3), and `faulthandler` of all Pythons: also several processes in
    one file, with whatever a launcher puts before a line.
    """

    name = "stack dump"
    certainty = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        if _START_OF_JSON.match(head):
            return len(set(_JSON.findall(head))) >= 3
        text = head.decode("utf-8", "replace")
        if "(most recent call first):" in text and " in " in text:
            lines = text.splitlines()
            stacks = sum(_FRAME.match(split(line).message) is not None for line in lines)
            # A log that ends with a dump is a log.
            return stacks * 3 > sum(bool(line.strip()) for line in lines)
        return bool(re.search(r"^Process \d+: ?.*\nPython v", text, re.MULTILINE)) or (
            re.search(r'^\s*Thread (?:0x)?[0-9A-Fa-f]+ \((?:idle|active)[^)]*\)(?:: '
                      r'".*")?$', text, re.MULTILINE) is not None
        )

    def read(self, path: Path) -> Iterator[Table]:
        threads = Threads()
        broken = ""
        with opened(path) as stream:
            try:
                line = stream.readline(LONGEST)
                while line and not line.strip():
                    line = stream.readline(LONGEST)
                if _START_OF_JSON.match(line):
                    broken = _read_json(threads, line + stream.read(LARGEST))
                    line = b""
                while line:
                    _read_line(threads, line.decode("utf-8", "replace").rstrip("\r\n"))
                    line = stream.readline(LONGEST)
            except Unreadable as error:
                broken = str(error)
        found = threads.threads()
        if not found:
            raise Unreadable(broken or "has no stack of a thread")
        named = named_rank(str(path))
        rank = file_rank(path.name) if named is None and _numbered(path.name) else named
        yield StackDump(file=str(path), rank=rank, threads=found, fatal=tuple(threads.fatal))
        if broken:
            raise Unreadable(f"{broken}; what stands before it is used")


def _numbered(name: str) -> bool:
    """py-spy's files are often named by the process, whose number is no rank."""
    short = re.search(r"[_\-.]\d{1,3}(?:\.\w+)*$|^\d{1,3}\.\w+$", name) is not None
    return short and not re.search(r"pid", name, re.IGNORECASE)


def _read_line(threads: Threads, line: str) -> None:
    prefix = split(line)
    text, rank = prefix.message, prefix.rank
    if (process := _PROCESS.match(text)) is not None:
        threads.next_process(int(process[1]), rank if rank is not None else _rank_in(process[2]))
    elif (thread := _THREAD.match(text)) is not None:
        current = thread[1] == "Current thread"
        if threads.complete(current=current) or (rank is not None and rank != threads.rank):
            threads.next_process(None, rank)
        threads.thread(thread[2] or "", current=current, active=None)
    elif (frame := _FRAME.match(text)) is not None:
        threads.frame(frame[1], int(frame[2]) if frame[2].isdigit() else 0, frame[3])
    elif (spy := _SPY_THREAD.match(text)) is not None:
        state = spy[1] or ""
        threads.thread(spy[2] or "", current="gil" in state, active="active" in state if state else None)
    elif threads.open and (frame := _SPY_FRAME.match(text)) is not None:
        threads.frame(frame[2], int(frame[3] or 0), frame[1])
    elif (fatal := _FATAL.match(text)) is not None:
        why = fatal[1] or fatal[2]
        threads.next_process(None, rank, crashed=bool(why))
        if why:
            threads.fatal.append(why[:200])
    elif text.strip() and (said := _rank_in(text)) is not None and not text.startswith((" ", "Python v")):
        threads.close()
        threads.heading = said


def _rank_in(text: str) -> int | None:
    """Of a command line or a heading; a local rank where there is no other."""
    found = _RANK.search(text) or _LOCAL.search(text)
    return int(found[1]) if found is not None else None


def _read_json(threads: Threads, data: bytes) -> str:
    """One document, or one a process, one after the other; what is wrong with it, or nothing."""
    text = data.decode("utf-8", "replace")
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            return f"no JSON at character {getattr(error, 'pos', at):,} ({type(error).__name__})"
        _take_json(threads, value, None)
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return ""


def _take_json(threads: Threads, value: Any, rank: int | None) -> None:
    """Threads in a list, or processes or ranks with lists of threads in them."""
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, dict):
            if isinstance(item, list):
                _take_json(threads, item, rank)
            continue
        frames = item.get("frames")
        if not isinstance(frames, list):
            own = item.get("rank", item.get("global_rank"))
            for key, inner in item.items():
                if isinstance(inner, list):
                    said = int(key) if str(key).isdigit() and len(str(key)) < 6 else _rank_in(str(key))
                    _take_json(threads, inner, own if isinstance(own, int) else said)
            continue
        pid = item.get("pid") if isinstance(item.get("pid"), int) else None
        if threads.process < 0 or pid != threads.pid or (rank is not None and rank != threads.rank):
            info = item.get("process_info")
            command = info.get("command_line", "") if isinstance(info, dict) else ""
            threads.next_process(pid, rank if rank is not None else _rank_in(str(command)))
        name, active, gil = item.get("thread_name"), item.get("active"), item.get("owns_gil")
        threads.thread(str(name or ""), current=gil is True, active=active if isinstance(active, bool) else None)
        for frame in frames:
            if isinstance(frame, dict):
                line = frame.get("line")
                threads.frame(str(frame.get("filename") or frame.get("short_filename") or "")[:1000],
                              line if isinstance(line, int) else 0, str(frame.get("name") or "")[:300])  # fmt: skip
