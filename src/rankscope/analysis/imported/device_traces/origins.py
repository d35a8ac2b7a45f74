"""Where in the user's program a span of the host came from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.analysis.imported.device_traces.nesting import Nesting
from rankscope.base.finding import Location
from rankscope.records.imported.device_trace import ANNOTATION, OPERATOR, PYTHON, DeviceTrace

_FRAME: Final = re.compile(r"^(?P<file>[^()]+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_MODULE: Final = re.compile(r"^nn\.Module: (.+)$")
# Not the user's: the libraries through which every call goes.
_LIBRARY: Final = re.compile(
    r"(^|/)(torch|torchvision|transformers|accelerate|lightning|pytorch_lightning|deepspeed|site-packages|dist-packages|"
    r"threading|runpy|contextlib|functools|importlib|multiprocessing|concurrent|asyncio|lib/python3[.\d]*)(/|\.py$)"
)
_MARKS: Final = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "nccl:", "gloo:")


@dataclass(frozen=True, slots=True)
class Origin:
    """What was around a call; empty and None where the trace was recorded without stacks."""

    operator: str
    modules: tuple[str, ...]
    """Outermost first."""
    annotation: str
    """The innermost range that the user marked."""
    frames: tuple[Location, ...]
    """Innermost first."""

    @property
    def line(self) -> Location | None:
        """The innermost line of the user's own code; of a library's where there is none of theirs."""
        own = [frame for frame in self.frames if not _LIBRARY.search(frame.file)]
        return own[0] if own else None

    @property
    def place(self) -> str:
        """` in Attention > Linear (model.py:41)`, or as much of it as is known."""
        modules = " > ".join(self.modules[-2:])
        line = self.line
        at = f"{line.file.rsplit('/', 1)[-1]}:{line.line}" if line else ""
        known = f"{modules} ({at})" if modules and at else modules or at or self.annotation
        return f" in {known}" if known else ""


def origin_of(trace: DeviceTrace, nesting: Nesting, span: int) -> Origin:
    """Of a launch or an operator; of one of the backward that of its forward, where that was recorded."""
    around = [span, *nesting.around(span)]
    found = _origin(trace, around)
    if not found.modules and not found.line:
        forward = _forward_of(trace, around)
        if forward >= 0:
            there = _origin(trace, [forward, *nesting.around(forward)])
            return Origin(found.operator, there.modules, found.annotation or there.annotation, there.frames)
    return found


def _origin(trace: DeviceTrace, around: list[int]) -> Origin:
    operator = annotation = ""
    modules: list[str] = []
    frames: list[Location] = []
    for span in around:
        name, category = trace.names[trace.name[span]], trace.category[span]
        if category == OPERATOR:
            operator = operator or name
            if not frames:
                frames = _recorded_stack(trace, span)
            modules = modules or _recorded_modules(trace, span)
        elif category == ANNOTATION and not annotation and not name.startswith(_MARKS):
            annotation = name
        elif category == PYTHON:
            module = _MODULE.match(name)
            if module:
                modules.insert(0, module[1])
            elif frame := frame_of(name):
                frames.append(frame)
    return Origin(operator, tuple(modules), annotation, tuple(frames))


def frame_of(text: str) -> Location | None:
    """`train.py(41): step`"""
    match = _FRAME.match(text.strip())
    return Location(match["file"], int(match["line"]), match["function"]) if match else None


def _recorded_stack(trace: DeviceTrace, span: int) -> list[Location]:
    at = np.flatnonzero(trace.stack_span == span)
    if not len(at):
        return []
    return [frame for part in trace.names[trace.stack_text[at[0]]].split(";") if (frame := frame_of(part))]


def _recorded_modules(trace: DeviceTrace, span: int) -> list[str]:
    at = np.flatnonzero(trace.module_span == span)
    return [part for part in re.split(r"[.>]", trace.names[trace.module_text[at[0]]]) if part] if len(at) else []


def _forward_of(trace: DeviceTrace, around: list[int]) -> int:
    """The operator of the forward with the number that one of these has in the backward; -1."""
    if not len(trace.sequence_span):
        return -1
    for span in around:
        at = np.flatnonzero(trace.sequence_span == span)
        if not len(at) or trace.sequence_forward_thread[at[0]] <= 0:
            continue
        same = (trace.sequence_number == trace.sequence_number[at[0]]) & (trace.sequence_forward_thread <= 0)
        spans = trace.sequence_span[same]
        if len(spans):
            # Of nested ones that share the number the innermost begins last.
            return int(spans[np.argmax(trace.start_ns[spans])])
    return -1
