"""What changed from one trace to another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from rankscope.analysis.imported.device_traces.launches import launches_of
from rankscope.analysis.imported.device_traces.shares import shares_of
from rankscope.analysis.imported.device_traces.steps import steps_of
from rankscope.analysis.imported.device_traces.work import work_of
from rankscope.analysis.imported.examiner import Shares
from rankscope.records.imported.device_trace import ANNOTATION, OPERATOR, RUNTIME, DeviceTrace

_STEP: Final = re.compile(r"^ProfilerStep#\d+$")

Change: TypeAlias = Literal["added", "removed", "more", "fewer", "equal"]


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """One operator, marked range or runtime call of the host, or one kernel, copy or fill of the device, in both
    traces; figures are per step where both traces have steps."""

    name: str
    on_device: bool
    change: Change
    """In the number of calls."""
    calls: tuple[float, float]
    ns: tuple[float, float]
    """In all; of an operator with what it calls."""

    @property
    def more_ns(self) -> float:
        """Negative where it takes less."""
        return self.ns[1] - self.ns[0]


@dataclass(frozen=True, slots=True)
class TraceDifference:
    """From the first trace to the second."""

    rows: tuple[ChangedRow, ...]
    """The largest difference in time first."""
    per_step: bool
    steps: tuple[int, int]
    step_ns: tuple[float | None, float | None]
    shares: tuple[Shares | None, Shares | None]

    def of(self, change: Change, on_device: bool) -> tuple[str, ...]:
        """Names with such a change."""
        return tuple(sorted(row.name for row in self.rows if row.change == change and row.on_device == on_device))


def compare_traces(a: DeviceTrace, b: DeviceTrace, step: int | None = None) -> TraceDifference:
    """Which operators and kernels were added, removed, or changed in number or time; with `step` only those of the
    step with that number, on the device what was launched in it."""
    sides = [_Side(trace, step) for trace in (a, b)]
    per_step = all(side.steps for side in sides)
    divisors = [max(1, side.steps) if per_step else 1 for side in sides]
    rows = []
    for on_device in (False, True):
        first, second = (side.sums(on_device) for side in sides)
        for name in sorted({*first, *second}):
            calls = first.get(name, (0, 0))[0] / divisors[0], second.get(name, (0, 0))[0] / divisors[1]
            ns = first.get(name, (0, 0))[1] / divisors[0], second.get(name, (0, 0))[1] / divisors[1]
            rows.append(ChangedRow(name, on_device, _change(*calls), calls, ns))
    rows.sort(key=lambda row: (-abs(row.more_ns), row.name))
    return TraceDifference(
        rows=tuple(rows),
        per_step=per_step,
        steps=(sides[0].steps, sides[1].steps),
        step_ns=(sides[0].step_ns, sides[1].step_ns),
        shares=(sides[0].shares, sides[1].shares),
    )


class _Side:
    def __init__(self, trace: DeviceTrace, step: int | None) -> None:
        self._trace = trace
        work = work_of(trace)
        launch = launches_of(trace, work)
        steps = steps_of(trace, work, launch)
        self._host = np.flatnonzero(np.isin(trace.category, (OPERATOR, ANNOTATION, RUNTIME)))
        self._device = work.span
        if step is not None:
            at = np.flatnonzero(steps.number == step)
            if not len(at):
                raise ValueError(f"{trace.file} has no step {step}; it has {_listed(steps.number.tolist())}")
            first, last = int(steps.host_start[at[0]]), int(steps.host_end[at[0]])
            self._host = self._host[(trace.start_ns[self._host] >= first) & (trace.start_ns[self._host] < last)]
            called = np.where(launch >= 0, trace.start_ns[launch], work.start)
            self._device = work.span[(called >= first) & (called < last)]
        self.steps = len(steps) if step is None else 1
        self.step_ns = steps.mean_ns
        self.shares = shares_of(work, trace.file, trace.rank)

    def sums(self, on_device: bool) -> dict[str, tuple[int, int]]:
        """(calls, ns) of each name."""
        trace = self._trace
        spans = self._device if on_device else self._host
        number, at = np.unique(trace.name[spans], return_inverse=True)
        ns = np.zeros(len(number), np.int64)
        np.add.at(ns, at, trace.duration_ns[spans])
        calls = np.bincount(at, minlength=len(number))
        found: dict[str, tuple[int, int]] = {}
        for name, count, total in zip(number.tolist(), calls.tolist(), ns.tolist(), strict=True):
            text = _STEP.sub("ProfilerStep", trace.names[name])
            before = found.get(text, (0, 0))
            found[text] = (before[0] + count, before[1] + total)
        return found


def _listed(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if numbers else "none"


def _change(before: float, after: float) -> Change:
    if before == 0:
        return "added"
    if after == 0:
        return "removed"
    if abs(after - before) <= 1e-9 * before:
        return "equal"
    return "more" if after > before else "fewer"
