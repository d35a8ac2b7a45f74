"""Learning-rate schedules: how many steps they have made, beside those of their optimizers."""

from __future__ import annotations

import sys
import weakref
from functools import wraps
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.wiring import SchedulerStat

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

HORIZONS = ("total_steps", "total_iters", "T_max")
"""Attributes that say after how many steps a schedule is over."""
MOST = (1 << 31) - 1


class _Counted:
    """The steps of one optimizer since its first schedule was made, and its schedules. Keeps neither alive."""

    __slots__ = ("optimizer", "schedules", "steps")

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.steps = 0
        self.schedules: list[tuple[weakref.ref[Any], int]] = []
        """Each with its number in the process."""


class Schedules(Source):
    """Objects of `torch.optim.lr_scheduler`, which count their steps themselves; read on sampled steps.

    Between them it counts the optimizer's steps.
    """

    name = "schedules"
    emits = (SchedulerStat,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        from torch.optim import lr_scheduler

        self._agent = agent
        self._counted: dict[int, _Counted] = {}
        """By identity of the optimizer."""
        self._number = 0
        self._patches = Patches()
        kind = lr_scheduler.LRScheduler
        self._patches.replace(kind, "__init__", self._watch_init(kind.__init__))

    def remove(self) -> None:
        self._patches.undo()
        if self._before in self._agent.before_optimizer:
            self._agent.before_optimizer.remove(self._before)

    def _watch_init(self, original: Any) -> Any:
        @wraps(original)
        def init(schedule: Any, *args: Any, **kwargs: Any) -> None:
            original(schedule, *args, **kwargs)
            try:
                self._note(schedule)
            except Exception as error:  # noqa: BLE001
                swallow("noting a schedule", error)

        return init

    def _note(self, schedule: Any) -> None:
        optimizer = schedule.optimizer
        known = self._counted.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer:
            known = self._counted[id(optimizer)] = _Counted(optimizer)
        if self._before not in self._agent.before_optimizer:
            self._agent.before_optimizer.append(self._before)
        self._number += 1
        known.schedules.append((weakref.ref(schedule), self._number))

    def _before(self, optimizer: Any) -> None:
        known = self._counted.get(id(optimizer))
        if known is None:
            return
        known.steps += 1
        agent = self._agent
        if not agent.sampled or agent.ended or agent.ring is None:
            return
        try:
            if known.optimizer() is optimizer:
                self._put(optimizer, known)
        except Exception as error:  # noqa: BLE001
            swallow("looking at a schedule", error)

    def _put(self, optimizer: Any, known: _Counted) -> None:
        agent = self._agent
        number = agent.optimizers.number(optimizer) & 255 | ("accelerate" in sys.modules) << 8
        for ref, index in known.schedules:
            schedule = ref()
            if schedule is None:
                continue
            # The first step is the one of its own beginning; this step of the optimizer is not over yet.
            scheduled = min(max(0, int(schedule._step_count) - 1), MOST)
            horizon = next((v for name in HORIZONS if type(v := getattr(schedule, name, None)) is int and v > 0), 0)
            agent.put(
                monotonic_ns(), 0, SchedulerStat.code, agent.name(type(schedule).__name__), agent.step,
                scheduled | min(known.steps - 1, MOST) << 32, min(horizon, MOST) | (index & 0xFFFF) << 32, number,
            )  # fmt: skip
