"""The one agent of this process, and the order in which its sources are installed."""

from __future__ import annotations

import os
import sys

from rankscope.base.clock import now_ns
from rankscope.base.guard import guard
from rankscope.base.plugins import load_all
from rankscope.capture import boot, callsite, sources
from rankscope.capture.agent import Agent
from rankscope.capture.compiled_frames import hide_from_dynamo
from rankscope.capture.config import Config
from rankscope.capture.source import Source

_agent: Agent | None = None


def current() -> Agent | None:
    """The agent of this process, or None where it is not observed."""
    return _agent


def start(config: Config, started_ns: int) -> Agent:
    """Create the agent and install every source; torch has been imported."""
    global _agent  # noqa: PLW0603  one a process
    if _agent is not None:
        return _agent
    agent = _agent = Agent(config)
    agent.started_ns = started_ns
    agent.armed_ns = now_ns()
    torch = sys.modules["torch"]
    callsite.add_library(os.path.dirname(os.path.abspath(str(torch.__file__))))
    for cls in load_all(sources, Source):
        if cls.stage and cls.stage not in config.stages:
            agent.sources_off[cls.name] = f"stage {cls.stage} is not among the configured ones"
        elif cls.needs == "torch":
            agent.install(cls())
        else:
            boot.after_import(cls.needs, lambda cls=cls: agent.install(cls()))  # type: ignore[misc]
    with guard("hiding from torch.compile"):
        hide_from_dynamo()
    agent.watch_end()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        # A worker of a launcher: it will train, and its start-up is worth seeing.
        agent.open()
    return agent


def stop() -> None:
    """Remove every source; the process goes on unobserved."""
    global _agent  # noqa: PLW0603  one a process
    if _agent is not None:
        _agent.remove()
        _agent = None
        boot.disarm()
