"""What batches consist of: as DataLoaders give them, as models get them, as a model's first layer gets them."""

from __future__ import annotations

from itertools import chain
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.capture.sampling import Schedule
from rankscope.capture.source import Source
from rankscope.capture.tensors.batch_tensors import tensors_in
from rankscope.capture.tensors.feature_ranges import FeatureRanges
from rankscope.capture.tensors.tensor_samples import observable
from rankscope.capture.tensors.tensor_values import plain, shape_of, values_of
from rankscope.records.batch_contents import FROM_LOADER, INTO_LAYER, INTO_MODEL, BatchTensor, FeatureRange
from rankscope.records.numerics import Sampling
from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

FIRST_BATCHES: Final = 2
"""Of a pass over a loader that are looked at in any step: an evaluation may begin in one that is not sampled."""
LOOKS_A_STEP: Final = 4
"""Batches of one sampled step: a whole evaluation may lie in it."""
LAYERS: Final = ("Linear", "Conv1d", "Conv2d", "Conv3d", "LazyLinear")
"""Classes of torch whose input is multiplied with weights."""


class BatchContents(Source):
    """Samples of the tensors of a batch, on sampled steps and where a pass over a loader or an evaluation begins."""

    name = "batch-contents"
    emits = (BatchTensor, FeatureRange)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._grad_enabled = torch.is_grad_enabled
        self._in_child()
        agent.on_batch.append(self._batch)
        agent.on_forward.append(self._forward)
        agent.on_turn.append(self._turn)
        agent.on_leaf.append(self._leaf)
        agent.in_child.append(self._in_child)

    def remove(self) -> None:
        agent = self._agent
        agent.on_batch.remove(self._batch)
        agent.on_forward.remove(self._forward)
        agent.on_turn.remove(self._turn)
        agent.on_leaf.remove(self._leaf)
        agent.in_child.remove(self._in_child)

    def _in_child(self) -> None:
        self._schedule = Schedule(self._agent.config.budget / 2)
        """Of the steps, spaced by what looks at batches cost; another source looks at losses."""
        self._by_count = Schedule(self._agent.config.budget)
        """Of passes over a loader and of changes of mode: they are spaced by their number alone."""
        self._passes: dict[int, int] = {}
        self._turns: dict[tuple[int, bool, bool], int] = {}
        self._ranges = FeatureRanges()
        self._begin(-1)
        self._looked_at = (0, 0)
        self._usual_ns = 0.0

    def _begin(self, step: int) -> None:
        self._step = step
        self._looks = self._tensors = self._cost_ns = 0
        self._seen: set[tuple[int, bool, bool]] = set()
        self._layered: set[tuple[int, bool]] = set()
        """Models, with their mode, whose first layer was seen in this step."""

    # -- who calls ---------------------------------------------------------------------------------------------

    def _batch(
        self, iterator: Any, batch: Any, name: int, ordinal: int, flags: int
    ) -> None:
        agent = self._agent
        if ordinal >= FIRST_BATCHES and not agent.sampled:
            return
        loader = flags & 0xFF
        if ordinal == 0:
            self._passes[loader] = self._passes.get(loader, -1) + 1
        first = ordinal < FIRST_BATCHES and self._by_count.sampled(self._passes.get(loader, 0))
        if (first or self._usual_look()) and self._may_look():
            begin = monotonic_ns()
            self._looks += 1
            where = loader | FROM_LOADER << 24 | self._grad_enabled() << 27
            for path, value in tensors_in(batch, "batch"):
                tensor = plain(value)
                if tensor is not None:
                    self._put(agent.name(path), tensor, name, where, begin)
                    self._put_range(path, tensor, name, loader, begin)
            self._cost_ns += monotonic_ns() - begin

    def _forward(self, module: Any, model: int, args: Any, kwargs: Any, output: Any) -> None:
        """A model was called in a sampled step: the first call in each mode."""
        mode = model, bool(module.training), self._grad_enabled()
        if self._usual_look() and mode not in self._seen and self._may_look():
            self._look_at_call(mode, args, kwargs)

    def _turn(self, module: Any, model: int, args: Any, kwargs: Any, output: Any) -> None:
        """A model was called in another mode than before: an evaluation begins, or training goes on after one."""
        mode = model, bool(module.training), self._grad_enabled()
        self._turns[mode] = self._turns.get(mode, -1) + 1
        if self._by_count.sampled(self._turns[mode]) and self._may_look():
            self._look_at_call(mode, args, kwargs)

    def _look_at_call(self, mode: tuple[int, bool, bool], args: Any, kwargs: Any) -> None:
        begin = monotonic_ns()
        self._seen.add(mode)
        model, training, grad = mode
        where = INTO_MODEL << 24 | training << 26 | grad << 27
        for path, value in chain(tensors_in(args, "input"), tensors_in(kwargs, "input")):
            tensor = plain(value)
            if tensor is not None:
                self._put(self._agent.name(path), tensor, model, where, begin)
        self._cost_ns += monotonic_ns() - begin

    def _leaf(self, module: Any, path: int, model: int, args: Any) -> None:
        """A module that calls no other one has run inside a model: of the first one with parameters, its input."""
        if self._agent.step != self._step:
            self._next_step()
        key = model, bool(module.training)
        if key in self._layered or not module._parameters or not self._may_look():
            return
        self._layered.add(key)
        kind = type(module)
        if kind.__name__ not in LAYERS or not kind.__module__.startswith("torch.nn.") or not args:
            return
        tensor = plain(args[0])
        if tensor is None or not tensor.is_floating_point():
            return
        begin = monotonic_ns()
        where = INTO_LAYER << 24 | key[1] << 26 | self._grad_enabled() << 27
        self._put(path, tensor, model, where, begin)
        self._cost_ns += monotonic_ns() - begin

    # -- how much ----------------------------------------------------------------------------------------------

    def _usual_look(self) -> bool:
        agent = self._agent
        if agent.step != self._step:
            self._next_step()
        return agent.sampled and self._looks < LOOKS_A_STEP and self._schedule.sampled(agent.step)

    def _may_look(self) -> bool:
        agent = self._agent
        if agent.config.level == "light" or agent.thread != get_ident() or agent.ended or agent.ring is None:
            return False
        if agent.step != self._step:
            self._next_step()
        return observable()

    def _next_step(self) -> None:
        """Another step than at the look before: write what the looks of that one took, and space them by it."""
        agent, cost = self._agent, self._cost_ns
        if self._tensors:
            agent.put(monotonic_ns() - cost, cost, Sampling.code, 0, max(0, self._step), self._tensors, 0, 0)
            step, at = self._looked_at
            self._looked_at = agent.step, agent.last_step_end
            if at and agent.step > step:
                usual = max(1.0, (agent.last_step_end - at) / (agent.step - step))
                self._usual_ns = min(self._usual_ns or usual, usual)
                self._schedule.account(cost, self._usual_ns)
        self._begin(agent.step)

    # -- writing -----------------------------------------------------------------------------------------------

    def _put(self, name: int, tensor: Any, source: int, where: int, at: int) -> None:
        """`where`: the loader's number in the lowest 8 bits, origin, training and grad from bit 24 on."""
        agent = self._agent
        v = values_of(tensor)
        non_finite = -int(-v.non_finite * 255 // 1) if v.non_finite else 0
        words = (
            source | agent.name(shape_of(tensor)) << 16 | where << 32 | non_finite << 40 | round(v.zeros * 255) << 48
            | v.integral << 60 | v.subnormal << 61
        )  # fmt: skip
        agent.put(
            at, 0, BatchTensor.code, name, agent.step, two_floats(v.mean, v.std), two_floats(v.least, v.most), words
        )  # fmt: skip
        self._tensors += 1

    def _put_range(self, path: str, tensor: Any, source: int, loader: int, at: int) -> None:
        agent = self._agent
        known = self._ranges.add((loader, path), tensor)
        if known is not None:
            agent.put(at, 0, FeatureRange.code, agent.name(path), agent.step, *known.words(source, loader))
