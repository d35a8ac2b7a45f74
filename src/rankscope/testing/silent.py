"""All made-up trainings of the `silent_*` modules: by cause those with a fault, by name the healthy ones."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Final

import rankscope.testing
from rankscope.analysis.facts import Facts
from rankscope.testing.trainings import Training

Made = Callable[[], Facts]


def _all_of(attribute: str) -> dict[str, Made]:
    found: dict[str, Made] = {}
    for info in pkgutil.iter_modules(rankscope.testing.__path__):
        if info.name.startswith("silent_"):
            module = importlib.import_module(f"rankscope.testing.{info.name}")
            runs: dict[str, Made] = getattr(module, attribute)
            assert not set(runs) & set(found), f"{info.name}: {set(runs) & set(found)} stand elsewhere already"
            found |= runs
    return found


SILENT: Final[dict[str, Made]] = _all_of("FAULTS")
"""Cause -> a training with that fault."""
HEALTHY_TRAININGS: Final[dict[str, Made]] = {
    "a plain training": Training().facts,
    "one process": Training(ranks=1, wrapper="").facts,
    **_all_of("HEALTHY"),
}
"""Name -> a training with nothing wrong."""
