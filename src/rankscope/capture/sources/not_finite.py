"""The first losses that are not finite, and where in their graph that came from."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import guard
from rankscope.base.rundir import RunDir
from rankscope.capture.describe import describe_process
from rankscope.capture.inventory import Held, Stock
from rankscope.capture.source import Source
from rankscope.capture.tensors import autograd_trace, snapshots
from rankscope.capture.tensors.tensor_samples import readable
from rankscope.records.not_finite import BATCH, GRADIENT, NOTHING_TO_LEARN, OPERATION, PARAMETER, UNKNOWN
from rankscope.records.not_finite import NotFinite as NotFiniteRecord
from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MOST: Final = 5
"""Losses of a process that are traced: the first one matters, the others say whether it went on."""
MOST_TENSORS: Final = 8
"""Of a batch."""


class NotFinite(Source):
    """Looks at the batch, the parameters and the graph behind a loss that is not finite.

    All of them are still as the forward left them. Before that it costs weak references to the batch.
    """

    name = "not-finite"
    emits = (NotFiniteRecord,)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._tensor = torch.Tensor
        self._in_child()
        agent.on_batch.append(self._on_batch)
        agent.on_config.append(self._listen)
        self._listen()
        agent.on_lost_loss.append(self._on_lost_loss)
        agent.on_lost_gradients.append(self._on_lost_gradients)
        agent.in_child.append(self._in_child)

    def remove(self) -> None:
        self._agent.on_config.remove(self._listen)
        self._listen(wanted=False)
        self._agent.on_batch.remove(self._on_batch)
        self._agent.on_lost_loss.remove(self._on_lost_loss)
        self._agent.on_lost_gradients.remove(self._on_lost_gradients)
        self._agent.in_child.remove(self._in_child)

    def _listen(self, *, wanted: bool = True) -> None:
        """Be told of optimizers where steps are to be skipped."""
        told = self._agent.before_optimizer
        if self._before_optimizer in told:
            told.remove(self._before_optimizer)
        if wanted and self._agent.config.on_nan == "skip":
            told.append(self._before_optimizer)

    def _in_child(self) -> None:
        self._found = 0
        self._lost = False
        """Whether a loss was."""
        self._batch: Sequence[tuple[object, weakref.ref[Any]]] = ()
        """Keys of its tensors, and the tensors."""
        self._ordinal = -1

    def _on_batch(self, iterator: Any, batch: Any, name: int, ordinal: int, flags: int) -> None:
        if self._found >= MOST:
            return
        self._ordinal = ordinal
        if type(batch) in (list, tuple) and len(batch) <= MOST_TENSORS:
            plain = self._tensor
            found = [weakref.ref(t) for t in batch if type(t) is plain]
            if len(found) == len(batch):  # as most batches are
                self._batch = list(enumerate(found))
                return
        self._batch = [(key, weakref.ref(t)) for key, t in _tensors(batch, self._tensor)]

    def _on_lost_loss(self, loss: Any, site: int) -> None:
        if self._found >= MOST:
            return
        self._found += 1
        self._lost = True
        agent = self._agent
        stock = Stock(agent.roots, ())
        lost = [held for held in stock.held.values() if not autograd_trace.finite(held.parameter)]
        name = module = detail = 0
        low = high = math.nan
        origin = UNKNOWN
        bad = next(((key, t) for key, t in self._batch_now() if not autograd_trace.finite(t)), None)
        if lost:
            origin, module = PARAMETER, agent.name(lost[0].path)
            name = self._lost_by(loss.grad_fn, lost)
        elif bad is not None:
            key, tensor = bad
            origin, name = BATCH, agent.name(key)
            count = int((~tensor.detach().isfinite()).sum())
            detail = agent.name(f"{count} of {tensor.numel()} values")
        elif (found := self._traced(loss)) is not None:
            kinds = {"data": BATCH, "no-targets": NOTHING_TO_LEARN, "operation": OPERATION, "parameter": PARAMETER}
            origin, low, high = kinds[found.what], found.low, found.high
            name, detail = agent.name(autograd_trace.operation(found.node)), agent.name(found.detail)
            before = stock.held.get(id(autograd_trace.parameter_before(found.node)))
            module = agent.name(before.path) if before is not None else 0
        counts = len(lost), len(stock.held)
        self._put(name, origin, site, counts, module=module, detail=detail, values=(low, high))
        self._act("the loss is not finite")

    def _on_lost_gradients(self, root: Any, site: int) -> None:
        # The gradients of a lost loss are lost as well.
        if self._lost or self._found >= MOST:
            return
        self._found += 1
        agent = self._agent
        stock = Stock(agent.roots, ())
        lost = [h for h in stock.held.values() if h.parameter.grad is not None and not _finite(h.parameter.grad)]
        if lost:
            name, counts = self._lost_by(root, lost), (len(lost), len(stock.held))
            self._put(name, GRADIENT, site, counts, module=agent.name(lost[0].path))

    def _act(self, why: str) -> None:
        """What the user wants done beyond a record."""
        config, agent = self._agent.config, self._agent
        if config.on_nan == "report" or not config.run_dir:
            return
        run, rank = RunDir(Path(config.run_dir)), describe_process(agent).rank
        snapshots.save(run.snapshots, rank, agent.step, dict(self._batch_now()), why)
        if config.on_nan == "stop":
            snapshots.ask_to_stop(run.stop, f"rank {rank}, step {agent.step}: {why} (--on-nan stop)")

    def _before_optimizer(self, optimizer: Any) -> None:
        """Where steps are to be skipped: without gradients an optimizer changes nothing, on no rank, for all of them
        have got the same."""
        if self._agent.ended:
            return
        with guard("skipping a step"):
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if all(_finite(p.grad) for p in parameters):
                return
            for parameter in parameters:
                parameter.grad = None
            self._act("the gradients are not finite")

    def _put(
        self, name: int, origin: int, site: int, counts: tuple[int, int], *, module: int, detail: int = 0,
        values: tuple[float, float] = (math.nan, math.nan),
    ) -> None:  # fmt: skip
        agent = self._agent
        affected, parameters = (min(count, 65535) for count in counts)
        b = module | site << 16 | detail << 32
        c = origin | max(0, self._ordinal) << 4 | affected << 28 | parameters << 44 | (self._ordinal >= 0) << 60
        agent.put(monotonic_ns(), 0, NotFiniteRecord.code, name, agent.step, two_floats(*values), b, c)

    def _traced(self, loss: Any) -> autograd_trace.Origin | None:
        if loss.grad_fn is None:
            return None
        return autograd_trace.trace(loss.grad_fn, math.isnan(float(loss.detach())))

    def _lost_by(self, root: Any, lost: list[Held]) -> int:
        """Name id of the operation with an infinite derivative before the lost parameters; 0 where none is likely."""
        if root is None:
            return 0
        identities = {id(held.parameter) for held in lost}
        node = autograd_trace.singular(root, lambda variable: id(variable) in identities)
        return self._agent.name(autograd_trace.operation(node)) if node is not None else 0

    def _batch_now(self) -> Iterator[tuple[str, Any]]:
        for key, ref in self._batch:
            tensor = ref()
            if tensor is not None:
                yield str(key), tensor


def _tensors(batch: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """Some tensors of a batch and their keys, two levels deep."""
    if isinstance(batch, kind):
        yield "batch", batch
        return
    count = 0
    for key, value in _items(batch):
        inner = ((key, value),) if isinstance(value, kind) else ((f"{key}.{k}", v) for k, v in _items(value))
        for path, tensor in inner:
            if isinstance(tensor, kind):
                yield path, tensor
                count += 1
                if count >= MOST_TENSORS:
                    return


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((str(key), item) for key, item in list(value.items())[:MOST_TENSORS])
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), item) for i, item in enumerate(value[:MOST_TENSORS]))


def _finite(gradient: Any) -> bool:
    plain = readable(gradient)
    return plain is None or autograd_trace.finite(plain)
