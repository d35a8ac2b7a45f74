"""What the user wants observed: from `rankscope run`'s environment, `rankscope.toml` and `rankscope.start()`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.base.errors import UserError
from rankscope.base.rundir import (
    ENV_BUDGET,
    ENV_CONFIG,
    ENV_LEVEL,
    ENV_ON_NAN,
    ENV_RING_DIR,
    ENV_RUN_DIR,
    LEVELS,
    ON_NAN,
)

DEFAULT_FILE = Path("rankscope.toml")
"""Read where the user names no other; in the working folder."""
STAGES = (
    "data", "forward", "backward", "optimizer", "communication", "checkpoint", "host", "compile", "stacks", "numerics",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """How a process is observed. `ring_folders` empty: not at all."""

    ring_folders: tuple[str, ...] = ()
    level: str = "standard"
    """`light`: steps, phases, batches and collectives (without call-site and shapes). `standard`: also call-sites,
    20 stack samples a second at first, and steps 0 to 3, 4, 16, 64, ... module by module. `deep`: every step module by
    module, 40 samples a second, and no budget is enforced."""
    budget: float = 0.01
    """Share of the step time that observation may take; above it the governor lowers the level of detail."""
    stages: tuple[str, ...] = STAGES
    modules: str = ""
    """Glob over module paths that are observed one by one on each step; empty: only on the deep steps."""
    on_nan: str = "report"
    """About a loss that is not finite: `report`; `snapshot` also saves the batch and the random generators' state;
    `stop` saves them and has the run ended; `skip` saves them and leaves the optimizer's step out."""
    run_dir: str = ""
    """Where snapshots go; empty: nowhere."""
    sample_hz: float = 20.0
    """Stack samples a second in the first 20 s of a process; later a quarter of it (5 at least), but at `deep`."""


def sample_rate(config: Config) -> float:
    """Stack samples a second at this level: none at `light`, `sample_hz` at `standard`, twice that at `deep`."""
    if config.level == "light" or "stacks" not in config.stages:
        return 0.0
    return min(200.0, config.sample_hz * (2 if config.level == "deep" else 1))


def from_environment(environ: Mapping[str, str] = os.environ) -> Config | None:
    """The configuration that `rankscope run` passed down, or None where this process is not observed."""
    run_dir = environ.get(ENV_RUN_DIR)
    if not run_dir:
        return None
    folders = tuple(x for x in (environ.get(ENV_RING_DIR), os.path.join(run_dir, "rings")) if x)
    base = Config(
        folders, environ.get(ENV_LEVEL, "standard"), parse_budget(environ.get(ENV_BUDGET, "1%")),
        on_nan=environ.get(ENV_ON_NAN, "report"), run_dir=run_dir,
    )  # fmt: skip
    path = environ.get(ENV_CONFIG)
    return with_file(base, Path(path)) if path else base


def with_file(config: Config, path: Path) -> Config:
    """`config` with what `rankscope.toml` says; a wrong key or value is the user's error."""
    return with_values(config, _read_toml(path), str(path))


def with_values(config: Config, values: Mapping[str, Any], where: str) -> Config:
    """`config` with the keys of one table: level, budget, stages, modules, sample_hz, on_nan."""
    changes: dict[str, Any] = {name: getattr(config, name) for name in Config.__dataclass_fields__}
    for key, value in values.items():
        if key == "level":
            if value not in LEVELS:
                raise UserError(f"{where}: level = {value!r} is none of {', '.join(LEVELS)}")
            changes["level"] = value
        elif key == "budget":
            changes["budget"] = parse_budget(value, f"{where}: budget")
        elif key == "stages":
            wrong = [x for x in value if x not in STAGES] if isinstance(value, (list, tuple)) else [value]
            if wrong:
                raise UserError(f"{where}: stages = {wrong[0]!r} is none of {', '.join(STAGES)}; write a list of these")
            changes["stages"] = tuple(value)
        elif key == "modules":
            if not isinstance(value, str):
                raise UserError(f'{where}: modules = {value!r} is no text; write a glob, as "layers.*"')
            changes["modules"] = value
        elif key == "on_nan":
            if value not in ON_NAN:
                raise UserError(f"{where}: on_nan = {value!r} is none of {', '.join(ON_NAN)}")
            changes["on_nan"] = value
        elif key == "sample_hz":
            if not isinstance(value, (int, float)) or not 0 <= value <= 200:
                raise UserError(f"{where}: sample_hz = {value!r} is no number from 0 to 200")
            changes["sample_hz"] = float(value)
        else:
            raise UserError(f"{where}: unknown key {key!r}; known: level, budget, stages, modules, sample_hz, on_nan")
    return Config(**changes)


def parse_budget(text: str | float, where: str = "budget") -> float:
    """A share from `1%` or `0.01`."""
    try:
        value = float(str(text).rstrip("%")) / (100 if str(text).endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise UserError(f"{where}: {text!r} is no share; write for example 1% or 0.01")
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is no file; give a rankscope.toml")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start}: is no text in UTF-8; give a rankscope.toml") from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: is no TOML: {error}; see examples/rankscope.toml") from error
