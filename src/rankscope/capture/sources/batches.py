"""Which data a rank reads, and in which order: a fingerprint of every batch, its indices, its class labels."""

from __future__ import annotations

from collections import deque
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import guard, swallow
from rankscope.capture.batch_prints import NOTHING, label_counts, look, order_of
from rankscope.capture.dataset_print import dataset_print
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.batches import MOST_LOADERS, MOST_PASSES, Batch, BatchLabels, Inputs, LoaderPass

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

READ_FIRST, FIRST_PASSES = 64, 3
"""Contents are read of so many batches at the start of each of so many passes."""
READ_LATER: Final = 16
"""The same of later passes."""
CLOSEST, FARTHEST = 4, 256
"""Then they are read of one batch of so many, by how quickly batches come: a power of two, so that two ranks that come
to different ones read those of the wider one in common. Labels are counted half as often."""
LOOK_NS: Final = 50_000
"""What reading a batch takes where the step before it has displaced everything from the caches; from them, 5 µs."""
SHARE: Final = 0.05
"""Part of the budget for overhead that reading may take in the long run."""
MOST_WAITING: Final = 4096
"""Batches whose indices are known and that have not come yet; a loader asks for a few ahead of time."""


class Batches(Source):
    """Reads a few elements of each batch, where they lie.

    The indices of its samples are seen as the rank's sampler gives them out.
    """

    name = "batches"
    emits = (Batch, LoaderPass, BatchLabels, Inputs)
    stage = "data"

    def install(self, agent: Agent) -> None:
        import torch
        from torch.utils.data import dataloader

        self._agent = agent
        self._patches = Patches()
        self._is_grad_enabled = torch.is_grad_enabled
        self._dispatch_modes = torch._C._len_torch_dispatch_stack
        self._function_modes = torch._C._len_torch_function_stack
        base = dataloader._BaseDataLoaderIter
        self._patches.replace(base, "_next_index", self._next_index(base._next_index))
        agent.on_batch.append(self._on_batch)
        agent.on_forward.append(self._on_forward)
        self._seen = -1
        """The last step with a batch of a DataLoader."""

    def remove(self) -> None:
        self._patches.undo()
        self._agent.on_batch.remove(self._on_batch)
        self._agent.on_forward.remove(self._on_forward)

    def _next_index(self, original: Any) -> Any:
        agent = self._agent

        @wraps(original)
        def _next_index(iterator: Any) -> Any:
            index = original(iterator)
            if agent.role != "rank" or agent.ended or agent.thread != get_ident() or agent.config.level == "light":
                return index
            try:
                own = iterator.__dict__
                waiting = own.get("_rankscope_orders")
                # A pass that was left before its end leaves indices behind; the next one has another iterator.
                if waiting is None or waiting[0] is not iterator._sampler_iter:
                    waiting = own["_rankscope_orders"] = (iterator._sampler_iter, deque(maxlen=MOST_WAITING))
                size = len(index) if type(index) is list else 1
                waiting[1].append((*order_of(index), size))
            except Exception as error:  # noqa: BLE001
                swallow("looking at sample indices", error)
            return index

        return _next_index

    def _on_batch(self, iterator: Any, batch: Any, name: int, ordinal: int, flags: int) -> None:
        agent = self._agent
        if agent.config.level == "light" or self._dispatch_modes() or self._function_modes():
            return  # a mode of the program's own watches operations
        self._seen = agent.step
        own = iterator.__dict__
        number = own.get("_rankscope_pass", 0)
        loader = min(flags & 0xFFFF, MOST_LOADERS)
        where = min(ordinal, (1 << 20) - 1) | min(number, MOST_PASSES) << 20 | loader << 30
        if ordinal == 0:
            own["_rankscope_began"] = monotonic_ns()
            with guard("looking at a sampler"):
                self._begin(iterator, where)
        grad = self._is_grad_enabled()
        first = READ_FIRST if number < FIRST_PASSES else READ_LATER
        every = 1 if ordinal < first else own.get("_rankscope_every") or self._every(own, ordinal)
        found = look(batch, every == 1 or ordinal % (2 * every) == 0) if ordinal % every == 0 else NOTHING
        waiting = own.get("_rankscope_orders")
        order, ascending, size = 0, False, 0
        if waiting is not None and waiting[1] and getattr(iterator, "_in_order", True):
            order, ascending, size = waiting[1].popleft()
        samples = min(size if order else found.samples, 65535)
        a = found.fingerprint | samples << 32
        b = _signed(order | found.integers << 32)
        c = where | min(found.length, (1 << 22) - 1) << 38 | grad << 60 | ascending << 61
        now = monotonic_ns()
        agent.put(now, 0, Batch.code, name, agent.step, a, b, c)
        if found.labels:
            low, high, distinct = label_counts(found.labels)
            path = agent.name(found.label_path)
            c = where | distinct << 38 | grad << 60
            agent.put(now, 0, BatchLabels.code, path, agent.step, _signed(low), _signed(high), c)

    def _every(self, own: dict[str, Any], ordinal: int) -> int:
        """Of how many batches of this pass one is read from now on; kept at its iterator."""
        usual = (monotonic_ns() - own.get("_rankscope_began", 0)) / ordinal
        every = CLOSEST
        while every < FARTHEST and self._agent.config.budget * SHARE * every * usual < LOOK_NS:
            every *= 2
        own["_rankscope_every"] = every
        return every

    def _on_forward(self, module: Any, model: int, args: Any, kwargs: Any, output: Any) -> None:
        agent = self._agent
        if self._seen == agent.step or not self._is_grad_enabled() or not module.training:
            return
        if self._dispatch_modes() or self._function_modes():
            return
        found = look([*args, *kwargs.values()], with_labels=False)
        agent.put(monotonic_ns(), 0, Inputs.code, model, agent.step, found.fingerprint, 0, 0)

    def _begin(self, iterator: Any, where: int) -> None:
        """Write what decides about the order of a new pass."""
        agent = self._agent
        sampler = _sampler(iterator._index_sampler)
        iterable = iterator._dataset_kind == 1
        epoch = getattr(sampler, "epoch", None)
        known = isinstance(epoch, int)
        shuffle = getattr(sampler, "shuffle", None) is True or type(sampler).__name__ == "RandomSampler"
        replicas = getattr(sampler, "num_replicas", 0)
        parts = replicas & 0xFFFF if isinstance(replicas, int) else 0
        b = (epoch & 0xFFFFFFFF if isinstance(epoch, int) else 0) | parts << 32
        b |= known << 48 | shuffle << 49 | iterable << 50
        size = -1 if iterable else _length(iterator)
        kind = agent.name(type(sampler).__name__)
        if not where >> 20 & MOST_PASSES:  # as it begins; it takes as long as ten batches
            where |= dataset_print(iterator._dataset) << 38
        agent.put(monotonic_ns(), 0, LoaderPass.code, kind, agent.step, size, b, where)


def _sampler(sampler: Any) -> Any:
    """The sampler that decides about the order: the one inside of those that only make batches or shards of it."""
    for _ in range(4):
        inner = getattr(sampler, "batch_sampler", None)
        inner = getattr(sampler, "sampler", None) if inner is None else inner  # their truth would be their length
        if inner is None or inner is sampler:
            break
        sampler = inner
    return sampler


def _length(iterator: Any) -> int:
    """Of its dataset; -1 where it has none. Asked once a loader's pass: torch's samplers ask as often."""
    try:
        return len(iterator._dataset)
    except Exception:  # noqa: BLE001  the user's own code, or none
        return -1


def _signed(word: int) -> int:
    """64 bits as the signed integer that a slot holds."""
    return word - (1 << 64) if word >> 63 else word
