"""Find every class of one kind: in one folder, where the file is the registration, and in other packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broken:
    """A class of another package that cannot be used, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class ThirdParty(Generic[T]):
    """What other packages have registered."""

    classes: tuple[type[T], ...]
    broken: tuple[Broken, ...]


def load_all(package: ModuleType, base: type[T], *, entry_points: bool = False) -> list[type[T]]:
    """Import each module of `package` and return its one public subclass of `base`, by file name.

    With `entry_points`, those of `load_third_party` follow that work.
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
        found += load_third_party(package, base).classes
    return found


def load_third_party(package: ModuleType, base: type[T]) -> ThirdParty[T]:
    """Classes that other packages registered under the group named like `package` (`rankscope.analysis.detectors`)."""
    classes: list[type[T]] = []
    broken: list[Broken] = []
    for point in importlib.metadata.entry_points(group=package.__name__):
        try:
            classes.append(_load(point, base))
        except Exception as error:  # noqa: BLE001 - whatever a stranger's import does, it is told to who asked
            why = f"the plug-in {point.value} cannot be loaded: {type(error).__name__}: {error}"
            broken.append(Broken(point.name, why))
    return ThirdParty(tuple(classes), tuple(broken))


def _load(point: importlib.metadata.EntryPoint, base: type[T]) -> type[T]:
    value = point.load()
    if not (isinstance(value, type) and issubclass(value, base)):
        raise TypeError(f"it is no {base.__name__}")
    missing = [name for name in base.__annotations__ if not hasattr(value, name)]
    if missing:
        raise TypeError(f"it has no {' and no '.join(missing)}")
    return value
