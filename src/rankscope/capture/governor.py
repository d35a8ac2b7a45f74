"""Keeps observation below its budget: adds up what it took, and lowers the level of detail where that is too much."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from rankscope.capture.self_cost import SAMPLE_NS

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

WINDOW: Final = 50
"""Steps that are judged together: enough for a median that a few disturbed steps do not move."""
LOWERED: Final = (
    "",
    "no step is recorded module by module",
    "and collectives are recorded without call-site and shapes, half as many stacks are sampled",
    "and 5 stacks a second are sampled",
)


class Governor:
    """After each window of steps above the budget, one notch less detail; never back up, never below the phases.

    The user's level `deep` is a wish for detail whatever it costs: then nothing is lowered.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.notch = 0
        self._shares: list[float] = []
        self._busy_ns = 0
        self._sampler_ns = 0

    def account(self, step_ns: int, own_ns: float) -> None:
        """One step that took `step_ns`, of which hooks took `own_ns`."""
        if step_ns <= 0:
            return
        self._shares.append(own_ns / step_ns)
        self._busy_ns += step_ns
        if len(self._shares) < WINDOW:
            return
        share = median(self._shares) + self._sampler_share()
        self._shares.clear()
        self._busy_ns = 0
        agent = self._agent
        if share > agent.config.budget and self.notch < len(LOWERED) - 1 and agent.config.level != "deep":
            self._lower()

    def state(self) -> str:
        """The level of detail in words: the user's level, and what has been left out since."""
        if not self.notch:
            return self._agent.config.level
        return f"{self._agent.config.level}, lowered to stay in the budget: " + ", ".join(LOWERED[1 : self.notch + 1])

    def _sampler_share(self) -> float:
        agent = self._agent
        cpu = sum(getattr(source, "thread_cpu_ns", 0) for source in agent.sources)
        used, self._sampler_ns = cpu - self._sampler_ns, cpu
        return used / self._busy_ns + agent.sample_hz * SAMPLE_NS * agent.slowness / 1e9

    def _lower(self) -> None:
        agent = self._agent
        self.notch += 1
        if self.notch == 1:
            agent.deep = False
        elif self.notch == 2:
            agent.sites = False
            agent.sample_hz /= 2
        else:
            agent.sample_hz = min(agent.sample_hz, 5.0)
        agent.describe()
