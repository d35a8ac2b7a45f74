"""The calls a user may write in a training script; none of them is needed under `rankscope run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from time import monotonic_ns
from typing import Any

from rankscope.base.guard import guard
from rankscope.base.rundir import ENV_OFF
from rankscope.capture import boot, deep, observer, standalone
from rankscope.capture.agent import Agent
from rankscope.capture.config import DEFAULT_FILE, Config, from_environment, with_file, with_values
from rankscope.records.record import float_bits
from rankscope.records.training import Metric, Span

_off = False
"""Nothing but `start` begins to observe: the user has called `stop`, or it has failed before."""


def start(name: str | None = None, config: str | Path | Mapping[str, Any] | None = None) -> str | None:
    """Begin to observe this process; returns the run's folder, or None when it is switched off.

    Under `rankscope run` this only applies `config`. Otherwise a run folder is created (the ranks of one launch
    share it) and a recorder is started. `config`: a path to a `rankscope.toml`, or its keys as a mapping; without
    it, `rankscope.toml` in the working directory is read where it exists. Raises ValueError for a wrong config.
    """
    global _off  # noqa: PLW0603  one a process
    base = from_environment()
    settings = _configured(base or Config(), config)
    if os.environ.get(ENV_OFF):
        return None
    _off = False
    agent = observer.current()
    if agent is not None:
        if config is not None:
            with guard("applying a configuration"):
                agent.configure(replace(settings, ring_folders=agent.config.ring_folders))
        return standalone.run_folder()
    with guard("starting"):
        if base is None:
            settings = standalone.begin(settings, name)
        import torch  # noqa: F401  the sources hook into it

        boot.start(settings)
    return standalone.run_folder()


def watch(
    model: Any,
    optimizer: Any = None,
    loader: Any = None,
    modules: str | None = None,
    stages: Sequence[str] | None = None,
) -> None:
    """Name the model whose modules are reported by path; `modules` is a glob, `stages` limits what is recorded.

    Raises ValueError for a stage that does not exist. Keeps no reference to the model.
    """
    values: dict[str, Any] = {}
    if stages is not None:
        values["stages"] = list(stages)
    if modules is not None:
        values["modules"] = modules
    agent = _agent()
    if agent is not None:
        settings = with_values(agent.config, values, "rankscope.watch")
        if settings != agent.config:
            with guard("applying a configuration"):
                agent.configure(settings)
    else:
        with_values(Config(), values, "rankscope.watch")
    with guard("watching a model"):
        if hasattr(model, "named_modules"):
            deep.learn_paths(model)


@contextmanager
def step() -> Iterator[None]:
    """Mark one step of your own; found without it where an optimizer steps."""
    agent = _agent()
    begin = monotonic_ns()
    mine = False
    if agent is not None:
        with guard("a step begins"):
            agent.open()
            mine = agent.adopt_thread()
            if mine:
                agent.explicit_steps = True
                if not agent.last_step_end:
                    agent.last_step_end = begin
    yield
    if mine and agent is not None:
        with guard("a step ends"):
            agent.end_step(monotonic_ns())


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Time a part of the step under a name of your own; phases may be nested."""
    agent = _agent()
    if agent is None or agent.ended:
        yield
        return
    mine = agent.thread == get_ident()
    before, id = agent.phase, agent.name(str(name))
    if mine:
        agent.phase = id
    begin = monotonic_ns()
    try:
        yield
    finally:
        end = monotonic_ns()
        if mine:
            agent.phase = before
        with guard("recording a phase"):
            put = agent.put if mine else agent.thread_put()
            put(begin, end - begin, Span.code, id, agent.step, agent.site(2), 0, 0)


def log(**values: Any) -> None:
    """Record numbers of your own (loss, reward, ...) at the current step.

    Numbers and CPU tensors of one element are read; a tensor on a device is skipped rather than waited for, and so is
    what is no number.
    """
    agent = _agent()
    if agent is None or agent.ended:
        return
    with guard("logging values"):
        put = agent.put if agent.thread == get_ident() else agent.thread_put()
        for name, value in values.items():
            number = _number(value)
            if number is not None:
                put(monotonic_ns(), 0, Metric.code, agent.name(name), agent.step, float_bits(number), 0, 0)


def stop() -> None:
    """End the observation of this process and undo every hook; the program goes on as if never observed."""
    global _off  # noqa: PLW0603  one a process
    _off = True
    with guard("stopping"):
        observer.stop()
        standalone.end()


def _agent() -> Agent | None:
    """The agent; under `rankscope run` one is made where a program has none yet, unless the user has stopped it."""
    global _off  # noqa: PLW0603  one a process
    agent = observer.current()
    if agent is None and not _off and "torch" in sys.modules and from_environment() is not None:
        _off = True  # whatever goes wrong below would go wrong each time
        with guard("starting"):
            start()
        agent = observer.current()
    return agent


def _configured(config: Config, given: str | Path | Mapping[str, Any] | None) -> Config:
    if given is None:
        return with_file(config, DEFAULT_FILE) if DEFAULT_FILE.is_file() else config
    if isinstance(given, Mapping):
        return with_values(config, given, "rankscope.start(config=...)")
    return with_file(config, Path(given))


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    device = getattr(getattr(value, "device", None), "type", None)
    if device == "cpu" and value.numel() == 1 and not value.is_complex():
        return float(value.detach().item())
    return float(value) if device is None and hasattr(value, "__float__") else None
