"""Compilations by torch.compile: how long, of what, and which guard made it necessary."""

from __future__ import annotations

import sys
from functools import wraps
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.host import Compile

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

SLACK_NS = 50_000_000
"""Dynamo reads the time at which a compilation begins before it calls back: it first asks all guards that it has, which
takes 0.4 ms with one compilation before and 1.2 ms with 60. Asked only of versions that do not say the end."""


class Compiles(Source):
    """Dynamo's compile callbacks and its metrics; torch._dynamo is never imported by us, only followed."""

    name = "compiles"
    emits = (Compile,)
    stage = "compile"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._patches = Patches()
        self._watching = False
        self._began: list[int] = []
        self._spans: list[tuple[int, int, int]] = []
        original = torch.compile

        @wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            with guard("following torch._dynamo"):
                self._follow()
            return result

        self._patches.replace(torch, "compile", compile)

    def remove(self) -> None:
        self._patches.undo()
        if self._watching:
            self._agent.on_step.remove(self._flush)
            handler = sys.modules["torch._dynamo.callback"].callback_handler
            with guard("leaving torch._dynamo"):
                if self._start in handler.start_callbacks:
                    handler.remove_start_callback(self._start)
                    handler.remove_end_callback(self._end)

    def _follow(self) -> None:
        callback: Any = sys.modules.get("torch._dynamo.callback")
        # `torch._dynamo.reset()` forgets its callbacks.
        if callback is None or self._start in callback.callback_handler.start_callbacks:
            return
        if not self._watching:
            self._agent.on_step.append(self._flush)
        self._watching = True
        callback.callback_handler.register_start_callback(self._start)
        callback.callback_handler.register_end_callback(self._end)

    def _start(self, *_: Any) -> None:
        self._began.append(monotonic_ns())

    def _end(self, *_: Any) -> None:
        end = monotonic_ns()
        begin = self._began.pop() if self._began else end
        if not self._began:  # a compilation inside another belongs to the outer one
            self._spans.append((begin, end, self._agent.step))
            self._agent.wake = 0

    def _flush(self) -> None:
        """At the end of a step: write the compilations that it held, with what dynamo says of them."""
        if not self._spans:
            return
        spans, self._spans = self._spans, []
        agent = self._agent
        if agent.ring is None:
            return
        metrics = self._new_metrics()
        epoch_ns = time_ns() - monotonic_ns()
        for begin, end, step in spans:
            at_once = [m for m in metrics if _ran_within(m, begin + epoch_ns, end + epoch_ns)]
            metric = min(at_once, key=_start_ns, default=None)  # a compilation inside another began later
            name, reason, ordinal, limit = _what(metric)
            reason_id = agent.name(reason) if reason else 0
            agent.put(begin, end - begin, Compile.code, agent.name(name), step, reason_id, ordinal, limit)

    def _new_metrics(self) -> list[Any]:
        utils: Any = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return []
        with guard("reading compilation metrics"):
            everything = [m for m in utils.get_compilation_metrics() if getattr(m, "co_name", None)]
            ids = [str(getattr(m, "compile_id", "")) for m in everything]
            last = getattr(self, "_last_id", "")
            fresh = everything[ids.index(last) + 1 :] if last in ids else everything
            if ids:
                self._last_id = ids[-1]
            return fresh
        return []


def _start_ns(metric: Any) -> int:
    """When a compilation began, in ns since the epoch; 0 where dynamo does not say."""
    us = getattr(metric, "start_time_us", None)
    return int(us) * 1000 if us else int((getattr(metric, "start_time", None) or 0) * 1e9)


def _ran_within(metric: Any, begin_ns: int, end_ns: int) -> bool:
    """Whether a compilation and a time, in ns since the epoch, have a moment in common."""
    end_us = getattr(metric, "end_time_us", None)
    ended = int(end_us) * 1000 if end_us else _start_ns(metric) + SLACK_NS
    return _start_ns(metric) <= end_ns and ended >= begin_ns


def _what(metric: Any) -> tuple[str, str, int, int]:
    """(function and place, failed guard, recompilations before, whether the limit was reached)."""
    if metric is None:
        return "unknown", "", 0, 0
    place = f"{metric.co_filename}:{metric.co_firstlineno}:{metric.co_name}"
    reason = str(getattr(metric, "recompile_reason", None) or "")
    failed = str(getattr(metric, "fail_reason", None) or "")
    ordinal = int(getattr(metric, "cache_size", None) or getattr(metric, "accumulated_cache_size", None) or 0)
    return place, reason[:500], ordinal, int("limit" in failed)
