"""From the start of Python to the first source: one import hook, armed once a process."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from rankscope.base.clock import now_ns
from rankscope.base.guard import guard

if TYPE_CHECKING:
    from rankscope.capture.config import Config

_started_ns = now_ns()
_finder: _AfterImport | None = None


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls all of `after[name]` once, when the module of that name has been executed."""

    def __init__(self) -> None:
        self.after: dict[str, list[Callable[[], None]]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        calls = self.after.pop(fullname, None)
        if calls is None:
            return None
        spec = importlib.util.find_spec(fullname) if path is None else _find_in(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for call in calls:
                with guard(f"observing {fullname}"):
                    call()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _find_in(fullname: str, path: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    return importlib.machinery.PathFinder.find_spec(fullname, path)


def after_import(name: str, call: Callable[[], None]) -> None:
    """Run `call` when module `name` has been imported; at once where it has been already."""
    global _finder  # noqa: PLW0603  one a process
    if name in sys.modules:
        call()
        return
    if _finder is None:
        _finder = _AfterImport()
        sys.meta_path.insert(0, _finder)
    _finder.after.setdefault(name, []).append(call)


def disarm() -> None:
    """Take the import hook away; what waited for a module waits no more."""
    global _finder  # noqa: PLW0603  one a process
    if _finder is not None and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    _finder = None


def arm() -> None:
    """Observe this process as `rankscope run` asked; a process that never imports torch costs nothing."""
    after_import("torch", _start_from_environment)


def _start_from_environment() -> None:
    from rankscope.capture.config import from_environment

    config = from_environment()
    if config is not None:
        start(config)


def start(config: Config) -> None:
    """Install the sources in this process; a second call changes nothing."""
    from rankscope.capture import observer

    observer.start(config, _started_ns)
