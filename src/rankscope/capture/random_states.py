"""Fingerprints of random generators in a loader worker: those of libraries, and those that the dataset holds."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from hashlib import blake2b
from time import monotonic_ns
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from rankscope.capture import callsite
from rankscope.records.batches import RandomState

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

FETCHES: Final = 3
"""Before the first fetch and after the first two ones: more would say the same again."""
MOST_OBJECTS, DEEPEST, LARGEST = 400, 6, 64
"""Of what hangs on a dataset: objects looked at, levels below it, elements of a container (more of them are data)."""
MOST_HELD: Final = 8
KEPT: Final = "_rankscope_generators"


def note_states(agent: Agent, fetcher: Any) -> None:
    """Write the states of all generators of this worker, before its first fetch and after the first ones."""
    fetches = agent.step
    if fetches >= FETCHES or agent.config.level == "light":
        return
    held = fetcher.__dict__.get(KEPT)
    if held is None:
        held = fetcher.__dict__[KEPT] = list(_held(fetcher))[:MOST_HELD]
    iterable = type(fetcher).__name__.startswith("_Iterable")
    place = _place(agent, fetcher.dataset)
    now = monotonic_ns()
    for name, generator, own in [*_libraries(), *((name, one, True) for name, one in held)]:
        state, stream = fingerprints(generator)
        c = agent.worker & 0xFFFF | fetches << 16 | own << 24 | iterable << 25
        agent.put(now, 0, RandomState.code, agent.name(name), fetches, state, stream | place << 32, c)


def _libraries() -> Iterator[tuple[str, Any, bool]]:
    """The generators that functions without one of their own draw from."""
    yield "random", random, False
    yield "torch", sys.modules["torch"].default_generator, False
    if "numpy.random" in sys.modules:
        yield "numpy", sys.modules["numpy.random"], False


def fingerprints(generator: Any) -> tuple[int, int]:
    """(of the whole state, of what stays the same while it draws) of a generator; 0 where nothing stays."""
    torch: Any = sys.modules["torch"]
    if isinstance(generator, torch.Generator):
        return _digest(generator.get_state().numpy().tobytes()), generator.initial_seed() * 0x9E3779B1 & 0xFFFFFFFF | 1
    if hasattr(generator, "getstate"):  # random.Random, or the module
        state = generator.getstate()
        return _digest(repr(state).encode()), _short(repr(state[1][:-1]).encode() if len(state) > 1 else b"")
    if hasattr(generator, "get_state"):  # numpy's RandomState, or its module
        kind, key, *rest = generator.get_state(legacy=True)
        return _digest(key.tobytes() + repr((kind, rest)).encode()), _short(key.tobytes())
    state = generator.bit_generator.state
    inner = state.get("state")
    stays = [inner[key] for key in ("inc", "key") if isinstance(inner, dict) and key in inner]
    return _digest(_plain(state)), _short(_plain(stays)) if stays else 0


def _plain(value: Any) -> bytes:
    """Bytes of a state made of dictionaries, arrays and numbers."""
    if isinstance(value, dict):
        return b"".join(key.encode() + _plain(value[key]) for key in sorted(value))
    if isinstance(value, list):
        return b"".join(map(_plain, value))
    return value.tobytes() if hasattr(value, "tobytes") else repr(value).encode()


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little", signed=True)


def _short(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=4).digest(), "little") | 1


def _held(fetcher: Any) -> Iterator[tuple[str, Any]]:
    """(name, generator) of those that hang on the dataset or the collate function, or stand beside the dataset's class.

    Attributes are read from `__dict__`: no property of the user's runs.
    """
    kinds: tuple[type, ...] = (random.Random, sys.modules["torch"].Generator)
    if "numpy.random" in sys.modules:
        numpy: Any = sys.modules["numpy.random"]
        kinds = (*kinds, numpy.RandomState, numpy.Generator)
    dataset = fetcher.dataset
    seen: set[int] = set()
    waiting: list[tuple[Any, str, int]] = [(dataset, type(dataset).__name__, 0)]
    collate = fetcher.collate_fn
    if not callsite.is_library(getattr(collate, "__code__", _held.__code__)):
        waiting.append((collate, getattr(collate, "__name__", type(collate).__name__), 0))
    waiting += [(value, name, DEEPEST) for name, value in _neighbours(dataset) if isinstance(value, kinds)]
    while waiting and len(seen) < MOST_OBJECTS:
        item, name, depth = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, kinds):
            yield name, item
        elif depth < DEEPEST:
            waiting += [(part, label, depth + 1) for part, label in _parts(item, name)]


def _neighbours(dataset: Any) -> list[tuple[str, Any]]:
    """The global names of the module that defines the dataset's class."""
    inner = dataset
    while type(inner).__module__.startswith("torch.") and hasattr(inner, "dataset"):
        inner = inner.dataset
    module = sys.modules.get(type(inner).__module__)
    return list(vars(module).items()) if module is not None and type(inner).__module__ != "builtins" else []


def _parts(item: Any, name: str) -> list[tuple[Any, str]]:
    kind = type(item)
    if kind in (list, tuple):
        return [(part, f"{name}[{i}]") for i, part in enumerate(item[:LARGEST])] if len(item) <= LARGEST else []
    if kind is dict:
        return [(part, f"{name}[{key!r}]") for key, part in item.items()] if len(item) <= LARGEST else []
    if kind is MethodType:
        return [(item.__self__, type(item.__self__).__name__)]
    if kind is FunctionType:
        return [(part, name) for cell in item.__closure__ or () for part in _content(cell)]
    inner = getattr(item, "__dict__", None)
    if isinstance(item, type) or type(inner) is not dict or kind.__module__ in ("torch", "builtins"):
        return []
    return [(part, f"{kind.__name__}.{label}") for label, part in inner.items()]


def _content(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing has been put into it yet
        return ()


def _place(agent: Agent, dataset: Any) -> int:
    """Name id of the line where the innermost dataset's class begins to make a sample."""
    inner = dataset
    while type(inner).__module__.startswith("torch.") and hasattr(inner, "dataset"):
        inner = inner.dataset
    for name in ("__getitem__", "__getitems__", "__iter__"):
        code = getattr(getattr(type(inner), name, None), "__code__", None)
        if code is not None and not callsite.is_library(code):
            return agent.name(callsite.describe(code, code.co_firstlineno))
    return 0
