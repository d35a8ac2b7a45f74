"""Keeps observation below its budget: adds up what it took, and lowers the level of detail where that is too much."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from rankscope.capture.config import sample_rate
from rankscope.records.host import SAMPLE_SWITCH_NS
from rankscope.records.process import LOWERED

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

WINDOW: Final = 5
"""Timed steps (one in 16) that are judged together: enough for a median that a disturbed one or two do not move."""
DEAR: Final = 4
"""Times the budget that hooks take where call-sites and shapes of collectives go: without them a stop says less."""
FEWEST_HZ: Final = 5.0
"""Stack samples a second that always stay: without any, no finding names a line."""


class Governor:
    """After a window of timed steps above the budget, one thing less: what costs most and can be spared best.

    Nothing comes back. Steps, phases and collectives are always recorded. The user's level `deep` is a wish for detail
    whatever it costs: then nothing is lowered.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.modules = True
        """Whether the modules that the user chose are recorded on each step."""
        self._shares: list[float] = []
        self._began_ns = 0
        self._sampler_ns = 0

    def account(self, end_ns: int, step_ns: int, own_ns: float) -> None:
        """One step that ended at `end_ns` and took `step_ns`, of which hooks took `own_ns`."""
        if step_ns <= 0:
            return
        if not self._shares:
            self._began_ns, self._sampler_ns = end_ns - step_ns, self._sampler_cpu_ns()
        self._shares.append(own_ns / step_ns)
        if len(self._shares) < WINDOW:
            return
        hooks, samples = median(self._shares), self._sampler_share(end_ns - self._began_ns)
        self._shares.clear()
        if hooks + samples > self._agent.config.budget and self._agent.config.level != "deep":
            self._lower(hooks, samples)

    def state(self) -> str:
        """The level of detail in words: the user's level, and what has been left out since."""
        agent = self._agent
        left_out = []
        if agent.sample_hz < sample_rate(agent.config):
            left_out.append(f"{agent.sample_hz:g} stacks a second are sampled")
        if not self.modules:
            left_out.append("no modules are recorded on each step")
        if not agent.sites and agent.config.level != "light":
            left_out.append("collectives are recorded without call-site and shapes")
        if not left_out:
            return agent.config.level
        return agent.config.level + LOWERED + " and ".join(left_out)

    def _sampler_share(self, passed_ns: int) -> float:
        used = self._sampler_cpu_ns() - self._sampler_ns
        return float(used / passed_ns + self._agent.sample_hz * SAMPLE_SWITCH_NS / 1e9)

    def _sampler_cpu_ns(self) -> int:
        return sum(getattr(source, "thread_cpu_ns", 0) for source in self._agent.sources)

    def _lower(self, hooks: float, samples: float) -> None:
        agent = self._agent
        budget = agent.config.budget
        if samples > budget / 4 and agent.sample_hz > FEWEST_HZ:
            agent.sample_hz = max(FEWEST_HZ, agent.sample_hz / 2)
        elif self.modules and agent.config.modules:
            self.modules = False
            agent.wake = 0  # what was prepared for the next step holds no longer
        elif agent.sites and hooks > DEAR * budget:
            agent.sites = False
        else:
            return  # what is left is the price of seeing steps and phases at all: the report says how much it is
        agent.describe()
