"""Takes stock of what is trained: models, parameters, buffers, optimizers, and who holds what."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rankscope.capture.optimizers import number_of
from rankscope.records.inventory import Buffer, Group, Inventory, Model, Module, Optimizer, Parameter

MOST_PARAMETERS: Final = 1500
"""Of a process: statistics of more would not fit between two visits of the recorder."""
MOST_MODULES: Final = 3000
MOST_SHAPES: Final = 4


@dataclass(frozen=True, slots=True)
class Root:
    """A model that the program has called. Keeps it not alive."""

    name: str
    name_id: int
    model: weakref.ref[Any]
    called: weakref.ref[Any]
    """What was called: the model, or what wraps it."""


@dataclass(slots=True)
class Held:
    """One parameter object and where it stands."""

    model: str
    model_id: int
    path: str
    parameter: Any
    group: str = ""


class Stock:
    """What there is at one moment. Holds parameters and modules: to be let go at once."""

    def __init__(self, roots: Iterable[Root], optimizers: Iterable[tuple[int, Any]]) -> None:
        alive = [(root, model) for root in roots if (model := root.model()) is not None]
        self._optimizers = list(optimizers)
        self._inner = {id(module): root.name for root, model in reversed(alive) for module in _inside(model)}
        # A part that is called by itself stands in the model that holds it.
        self._alive = sorted(alive, key=lambda pair: id(pair[1]) in self._inner)
        self.held: dict[int, Held] = {}
        """Parameters of the models by identity, each under its first path."""
        self.left_out = 0
        for root, model in self._alive:
            for path, parameter in model.named_parameters():
                if id(parameter) in self.held:
                    continue
                if len(self.held) >= MOST_PARAMETERS:
                    self.left_out += 1
                    continue
                self.held[id(parameter)] = Held(root.name, root.name_id, clean(path), parameter)
        self.foreign: dict[int, Held] = {}
        """Parameters that only an optimizer holds."""
        for number, optimizer in self._optimizers:
            for index, group in enumerate(optimizer.param_groups):
                for place, parameter in enumerate(group["params"]):
                    known = self.held.get(id(parameter))
                    if known is not None:
                        known.group = known.group or f"{number}.{index}"
                    elif len(self.held) + len(self.foreign) < MOST_PARAMETERS:
                        path = f"{type(optimizer).__name__}#{number}.groups[{index}].params[{place}]"
                        self.foreign[id(parameter)] = Held("", 0, path, parameter, f"{number}.{index}")

    def buffers(self) -> Iterator[tuple[Root, str, Any]]:
        """All buffers of the models, each once."""
        seen = set()
        for root, model in self._alive:
            for path, buffer in model.named_buffers():
                if id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield root, clean(path), buffer

    def key(self) -> int:
        """Another number where the inventory would be another one."""
        parts = [(k, h.parameter.requires_grad, h.group) for k, h in self.held.items()]
        return hash((tuple(parts), tuple(self.foreign), tuple(id(model) for _, model in self._alive)))

    def inventory(self, step: int) -> Inventory:
        models = tuple(self._model(root, model) for root, model in self._alive)
        optimizers = tuple(self._optimizer(number, one) for number, one in self._optimizers)
        return Inventory(step, models, optimizers, self.left_out)

    def _model(self, root: Root, model: Any) -> Model:
        owners: dict[str, Any] = {}
        modules: list[Module] = []
        for path, module in model.named_modules():
            own = sum(p is not None for p in module._parameters.values())
            owners[path] = module
            if len(modules) < MOST_MODULES:
                modules.append(Module(clean(path), type(module).__name__, bool(module.training), own))
        paths: dict[int, list[str]] = {}
        for path, parameter in model.named_parameters(remove_duplicate=False):
            paths.setdefault(id(parameter), []).append(path)
        storages: dict[int, int] = {}
        parameters = []
        for key, found in paths.items():
            held = self.held.get(key)
            if held is not None and held.model == root.name:
                parameters.append(_parameter(held, found, owners, storages))
        buffers = tuple(
            Buffer(clean(path), tuple(b.shape), _dtype(b), type(owners[path.rpartition(".")[0]]).__name__)
            for path, b in model.named_buffers()
        )
        called = root.called()
        wrapper = type(called).__name__ if called is not None and called is not model else ""
        part_of = self._inner.get(id(model), "")
        return Model(root.name, wrapper, tuple(parameters), tuple(modules), buffers[:MOST_MODULES], part_of)

    def _optimizer(self, number: int, optimizer: Any) -> Optimizer:
        groups = []
        for group in optimizer.param_groups:
            foreign = [p for p in group["params"] if id(p) not in self.held]
            shapes = tuple(tuple(p.shape) for p in foreign[:MOST_SHAPES])
            groups.append(
                Group(_known(group.get("lr")), _known(group.get("weight_decay")), len(group["params"]), len(foreign),
                      shapes)
            )  # fmt: skip
        return Optimizer(number, type(optimizer).__name__, tuple(groups))


def clean(path: str) -> str:
    """A path without what torch.compile and activation checkpointing put into it."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."):
        path = path.replace(wrapper, "")
    return path


def _inside(model: Any) -> Iterator[Any]:
    """The modules below a model."""
    modules = model.modules()
    next(modules, None)
    yield from modules


def _parameter(held: Held, paths: list[str], owners: dict[str, Any], storages: dict[int, int]) -> Parameter:
    parameter = held.parameter
    owner = owners.get(paths[0].rpartition(".")[0])
    placements = getattr(parameter, "placements", None)
    return Parameter(
        path=held.path,
        shape=tuple(parameter.shape),
        dtype=_dtype(parameter),
        trainable=bool(parameter.requires_grad),
        owner=type(owner).__name__,
        group=held.group,
        placement=str(tuple(placements)) if placements is not None else "",
        also=tuple(clean(path) for path in paths[1:]),
        storage=storages.setdefault(_storage(parameter), len(storages)),
    )


def _storage(tensor: Any) -> int:
    """Where its memory begins; its own number where it has none (meta, another layout)."""
    try:
        return tensor.untyped_storage().data_ptr() or -id(tensor)
    except (RuntimeError, NotImplementedError, AttributeError):
        return -id(tensor)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _known(value: Any) -> float | None:
    number = number_of(value)
    return number if math.isfinite(number) else None
