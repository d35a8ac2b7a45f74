"""Puts the records of one compilation together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rankscope.artefacts.compile_log.generated_code import WAIT, called, scheduled
from rankscope.artefacts.compile_log.lines import Record
from rankscope.records.imported.compile_log import CodePlace, Compilation, GraphBreak

MOST: Final = 50_000
"""Compilations, and graph breaks, of one file."""
MOST_REASONS: Final = 20
MOST_TEXT: Final = 300
LIBRARY: Final = ("/torch/", "torch/_", "/site-packages/", "<frozen", "/lib/python", "<string>")
LIMIT: Final = re.compile(r'"(?:recompile_limit|cache_size_limit)": (\d{1,9})')
CACHES: Final = re.compile(r"^(fx_graph|aotautograd)_cache_(hit|miss|bypass|hash)$")
BREAK_AT: Final = re.compile(r'(?:File "([^"]+)", line (\d+), in (\S+)|user code at (\S+?):(\d+))')


@dataclass(slots=True)
class _Open:
    """A compilation of which more may come."""

    code: CodePlace | None = None
    caller: CodePlace | None = None
    start_ns: int | None = None
    seconds: float | None = None
    reasons: tuple[str, ...] = ()
    failure: str = ""
    suppressed: bool = False
    limit: int | None = None
    fx_cache: list[str] = field(default_factory=list)
    autograd_cache: list[str] = field(default_factory=list)
    attempt: int = 0
    code_calls: list[str] = field(default_factory=list)
    graph_calls: list[str] | None = None
    schedule: list[str] | None = None


Key = tuple[str, int, int]


class Collecting:
    """Takes records in the order of the file; `compilations` and `breaks` are what they come to."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.start_ns: int | None = None
        self.breaks: list[GraphBreak] = []
        self.num_dropped = 0
        self._open: dict[Key, _Open] = {}
        self._names: dict[int, str] = {}
        self._kinds: dict[str, Callable[[_Open, Record], None]] = {
            "dynamo_start": self._dynamo_start,
            "compilation_metrics": self._metrics,
            "inductor_output_code": self._output_code,
            "inductor_post_grad_graph": self._post_grad,
            "artifact": self._artifact,
        }

    def take(self, record: Record) -> None:
        """Raises ValueError, TypeError, KeyError or AttributeError where the record is not what its name says."""
        if record.rank is not None and self.rank is None:
            self.rank = record.rank
        data = record.data
        if isinstance(data.get("str"), list):
            text, number = data["str"]
            self._names[int(number)] = str(text)[:1000]
            return
        if "chromium_event" in data:
            self._clock(record)
            return
        kind = next((name for name in self._kinds if name in data), None)
        if kind is None or type(data.get("frame_id")) is not int:
            return
        one = self._of(data)
        if one is not None:
            self._kinds[kind](one, record)

    def compilations(self) -> tuple[Compilation, ...]:
        return tuple(_closed(key, one) for key, one in self._open.items())

    def _of(self, data: dict[str, Any]) -> _Open | None:
        said, count = data.get("compiled_autograd_id"), data.get("frame_compile_id")
        autograd = "" if said is None else str(said)[:20]
        key = (autograd, int(data["frame_id"]), count if type(count) is int else 0)
        one = self._open.get(key)
        if one is None:
            if len(self._open) >= MOST:
                self.num_dropped += 1
                return None
            one = self._open[key] = _Open()
        attempt = data.get("attempt")
        if type(attempt) is int and attempt > one.attempt:
            # What came out of an attempt that was given up is not used.
            one.attempt, one.code_calls, one.graph_calls, one.schedule = attempt, [], None, None
        return one

    def _clock(self, record: Record) -> None:
        event = record.json() if record.payload else None
        moment = event.get("ts") if isinstance(event, dict) else None
        if self.start_ns is None and isinstance(moment, (int, float)) and moment > 1e14:
            self.start_ns = int(moment * 1000)

    def _dynamo_start(self, one: _Open, record: Record) -> None:
        stack = record.data["dynamo_start"].get("stack") or []
        places = [self._place(frame) for frame in stack if isinstance(frame, dict)]
        if not places:
            return
        one.code = one.code or places[-1]
        one.caller = next((p for p in reversed(places) if not _library(p.file)), None)

    def _place(self, frame: dict[str, Any]) -> CodePlace:
        name = frame.get("filename", "")
        file = self._names.get(name, "") if isinstance(name, int) else str(name)
        line = frame.get("line")
        return CodePlace(file[:1000], line if isinstance(line, int) else 0, str(frame.get("name") or "")[:MOST_TEXT])

    def _metrics(self, one: _Open, record: Record) -> None:
        said = record.data["compilation_metrics"]
        file, line = said.get("co_filename"), said.get("co_firstlineno")
        if isinstance(file, str):
            function = str(said.get("co_name") or "")[:MOST_TEXT]
            one.code = CodePlace(file[:1000], line if isinstance(line, int) else 0, function)
        seconds = said.get("entire_frame_compile_time_s")
        if not _positive(seconds):
            micro = said.get("duration_us") or said.get("dynamo_cumulative_compile_time_us")
            seconds = micro / 1e6 if _positive(micro) else None
        if seconds is not None:  # the backward pass is compiled later, and has its own
            one.seconds = (one.seconds or 0.0) + float(seconds)
        start = said.get("start_time")
        if _positive(start) and one.start_ns is None:
            one.start_ns = int(start * 1e9)
            self.start_ns = self.start_ns or one.start_ns
        if said.get("fail_type"):
            one.failure = f"{said['fail_type']}: {' '.join(str(said.get('fail_reason') or '').split())}"[:MOST_TEXT]
        one.suppressed = said.get("config_suppress_errors") is True
        limit = LIMIT.search(str(said.get("dynamo_config") or ""))
        one.limit = int(limit[1]) if limit is not None else one.limit
        reason = said.get("recompile_reason")
        if isinstance(reason, str) and not one.reasons:
            one.reasons = (_one_line(reason),)

    def _output_code(self, one: _Open, record: Record) -> None:
        one.code_calls += called(record.payload)

    def _post_grad(self, one: _Open, record: Record) -> None:
        one.graph_calls = [*(one.graph_calls or ()), *called(record.payload)]

    def _artifact(self, one: _Open, record: Record) -> None:
        name = str(record.data["artifact"].get("name", ""))
        cache = CACHES.match(name)
        if cache is not None:
            outcome = cache[2]
            if outcome == "hash":  # before torch 2.5 the outcome stood inside
                inside = record.json() if record.payload else None
                outcome = str(inside.get("cache_state", ""))[:20] if isinstance(inside, dict) else ""
            if outcome:
                (one.fx_cache if cache[1] == "fx_graph" else one.autograd_cache).append(outcome)
        elif name == "recompile_reasons":
            one.reasons = _reasons(record)
        elif name == "inductor_collective_schedule":
            one.schedule = [*(one.schedule or ()), *(scheduled(record.json()) or ())]
        elif name in ("after_post_grad_graph", "inductor_post_grad_graph"):
            self._post_grad(one, record)
        elif name == "dynamo_graph_break_reason":
            self._break(record.text)

    def _break(self, text: str) -> None:
        if len(self.breaks) >= MOST:
            self.num_dropped += 1
            return
        places = [CodePlace(m[1] or m[4], int(m[2] or m[5]), m[3] or "") for m in BREAK_AT.finditer(text[:20_000])]
        lines = [line.strip() for line in text[:20_000].splitlines() if line.strip()]
        first = lines[0] if lines else ""
        told = next((line for line in lines if line.startswith(("Reason:", "Graph Break Reason:"))), first)
        place = next((p for p in reversed(places) if not _library(p.file)), places[-1] if places else None)
        self.breaks.append(GraphBreak(place, _one_line(told.partition("Reason:")[2] or told)))


def _reasons(record: Record) -> tuple[str, ...]:
    """A list in JSON; where there is only one, torch also writes it as it is, though it calls it JSON."""
    try:
        inside = record.json()
    except ValueError:
        inside = record.text.splitlines()
    texts = inside[:MOST_REASONS] if isinstance(inside, list) else [inside]
    return tuple(_one_line(str(text)) for text in texts if text)


def _closed(key: Key, one: _Open) -> Compilation:
    waits = one.code_calls.count(WAIT)
    planned = one.schedule if one.schedule is not None else one.graph_calls
    return Compilation(
        autograd=key[0], frame=key[1], count=key[2], attempt=one.attempt, code=one.code, caller=one.caller,
        start_ns=one.start_ns, seconds=one.seconds, reasons=one.reasons, failure=one.failure,
        suppressed=one.suppressed, limit=one.limit, fx_cache=",".join(one.fx_cache[:100]),
        autograd_cache=",".join(one.autograd_cache[:100]), collectives=len(one.code_calls) - waits, waits=waits,
        planned=tuple(planned) if planned is not None else None,
    )  # fmt: skip


def _library(file: str) -> bool:
    return not file or any(part in file for part in LIBRARY)


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MOST_TEXT]
