"""Find every class of one kind in one folder: the file is the registration."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def load_all(package: ModuleType, base: type[T], *, entry_points: bool = False) -> list[type[T]]:
    """Import each module of `package` and return its one public subclass of `base`, by file name.

    With `entry_points`, third-party classes registered under the group named like the package
    (for example `rankscope.analysis.detectors`) follow.
    """
    found: list[type[T]] = []
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        classes = [
            value
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, base)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ]
        if len(classes) != 1:
            raise TypeError(f"{module.__name__} must define one public {base.__name__}, not {len(classes)}")
        found += classes
    if entry_points:
        for point in importlib.metadata.entry_points(group=package.__name__):
            value = point.load()
            if not (isinstance(value, type) and issubclass(value, base)):
                raise TypeError(f"entry point {point.name!r} ({point.value}) is no {base.__name__}")
            found.append(value)
    return found
