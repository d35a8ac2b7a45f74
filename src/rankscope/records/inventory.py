"""What a process trains: models with their parameters, modules and buffers, and the optimizers that hold them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter object. Several paths may lead to it: the first is its name, the others are `also`."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    owner: str
    """Class of the module that holds it."""
    group: str = ""
    """`optimizer number.group number` of the optimizer that holds it; empty: none does."""
    placement: str = ""
    """Of a distributed tensor, how it is laid out: `(Shard(dim=0),)`; empty: a plain tensor."""
    also: tuple[str, ...] = ()
    storage: int = 0
    """Equal for parameters that lie in the same memory; counts up in the order of the paths."""


@dataclass(frozen=True, slots=True)
class Module:
    path: str
    kind: str
    """Its class."""
    training: bool
    own_parameters: int


@dataclass(frozen=True, slots=True)
class Buffer:
    path: str
    shape: tuple[int, ...]
    dtype: str
    owner: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the program calls, without its wrappers."""

    name: str
    """`Class`, or `Class#k` of the k-th further object of that class."""
    wrapper: str
    """Class of what it is called through (DistributedDataParallel, ...); empty: nothing."""
    parameters: tuple[Parameter, ...]
    modules: tuple[Module, ...]
    buffers: tuple[Buffer, ...] = ()
    part_of: str = ""
    """Name of the model that holds it as a module; its parameters stand there."""


@dataclass(frozen=True, slots=True)
class Group:
    lr: float | None
    weight_decay: float | None
    parameters: int
    foreign: int
    """Parameters of it that no known model holds."""
    foreign_shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the first ones of these."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    number: int
    kind: str
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """As it was at the end of a step; written again when it has changed."""

    step: int
    models: tuple[Model, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    left_out: int = field(default=0)
    """Parameters beyond the limit, of which nothing is known."""

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def decode_inventory(text: str) -> Inventory:
    """The inventory back from its JSON."""
    raw = json.loads(text)
    models = tuple(
        Model(
            name=m["name"],
            wrapper=m["wrapper"],
            parameters=tuple(
                Parameter(**{**p, "shape": tuple(p["shape"]), "also": tuple(p["also"])}) for p in m["parameters"]
            ),
            modules=tuple(Module(**x) for x in m["modules"]),
            buffers=tuple(Buffer(**{**b, "shape": tuple(b["shape"])}) for b in m["buffers"]),
            part_of=m["part_of"],
        )
        for m in raw["models"]
    )
    optimizers = tuple(
        Optimizer(
            o["number"],
            o["kind"],
            tuple(
                Group(**{**g, "foreign_shapes": tuple(tuple(s) for s in g["foreign_shapes"])}) for g in o["groups"]
            ),
        )
        for o in raw["optimizers"]
    )
    return Inventory(raw["step"], models, optimizers, raw["left_out"])
