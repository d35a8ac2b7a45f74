"""Weight initialisation before the first step: how often each function ran, and how much was done twice."""

from __future__ import annotations

import weakref
from functools import wraps
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard, swallow
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.training import Call

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Initialisers(Source):
    """The in-place functions of `torch.nn.init`, counted until the first step has ended."""

    name = "initialisers"
    emits = (Call,)
    stage = "host"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._patches = Patches()
        self._is_compiling = torch.compiler.is_compiling
        self._inside = False
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._totals: dict[str, list[int]] = {}
        for name, function in list(vars(torch.nn.init).items()):
            if name.endswith("_") and not name.startswith("_") and callable(function):
                self._patches.replace(torch.nn.init, name, self._counted(name, function))
        agent.on_step.append(self._flush)

    def remove(self) -> None:
        self._patches.undo()
        self._agent.on_step = [call for call in self._agent.on_step if call != self._flush]

    def _counted(self, name: str, original: Any) -> Any:
        is_compiling = self._is_compiling

        @wraps(original)
        def initialise(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._inside:
                return original(tensor, *args, **kwargs)
            self._inside = True
            begin = monotonic_ns()
            try:
                return original(tensor, *args, **kwargs)
            finally:
                self._inside = False
                try:
                    self._note(name, tensor, begin, monotonic_ns() - begin)
                except Exception as error:  # noqa: BLE001
                    swallow("counting an initialisation", error)

        return initialise

    def _note(self, name: str, tensor: Any, begin: int, duration: int) -> None:
        known = self._seen.get(id(tensor))
        repeated = known is not None and known() is tensor
        if not repeated:
            self._seen[id(tensor)] = weakref.ref(tensor)
        total = self._totals.setdefault(name, [begin, 0, 0, 0, 0])
        total[1] += duration
        total[2] += 1
        total[3] += duration if repeated else 0
        total[4] = total[4] or self._agent.site(2)

    def _flush(self) -> None:
        """After the first step: write the totals and stop counting."""
        agent = self._agent
        # A new list: the agent is going through the old one.
        agent.on_step = [call for call in agent.on_step if call != self._flush]
        for name, (begin, duration, count, repeated, site) in self._totals.items():
            agent.put(
                begin, duration, Call.code, agent.name(f"torch.nn.init.{name}"), agent.step, site, count, repeated
            )
        self._totals.clear()
        self._seen.clear()
        with guard("ending the count of initialisations"):
            self._patches.undo()
