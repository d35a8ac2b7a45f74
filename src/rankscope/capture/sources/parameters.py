"""Gradients, parameters and buffers on the sampled steps, and the inventory of what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import guard, swallow
from rankscope.capture.inventory import Held, Stock
from rankscope.capture.listeners import tell
from rankscope.capture.sampling import Schedule
from rankscope.capture.source import Source
from rankscope.capture.tensors.tensor_samples import Samples, Stat, norms, observable, readable
from rankscope.records import payload
from rankscope.records.numerics import (
    AFTER_BACKWARD,
    BEFORE_OPTIMIZER,
    BufferStat,
    GradientStat,
    Sampling,
    WeightStat,
)
from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MOST_INVENTORIES: Final = 20
MOST_INVENTORY_CHARACTERS: Final = 1 << 19
"""Of all inventories of a process: they lie in the region of names, which has room for 2 MB."""
MOST_CALLS: Final = 256
"""Forwards, and backwards, that are looked at in one sampled step at most; a window of accumulation is shorter."""


class Parameters(Source):
    """Gradients, parameters and buffers on sampled steps.

    Gradients as the last backward left them and as the optimizer gets them, parameters and buffers before and after.
    Reads what lies in memory anyway; nothing is communicated, and no device is waited for: tensors on a device are
    left out, and counted.
    """

    name = "parameters"
    emits = (GradientStat, WeightStat, BufferStat, Sampling)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        self._agent = agent
        self._schedule = Schedule(agent.config.budget)
        self._inventories = self._characters = 0
        self._key = self._optimizers = 0
        self._usual_ns = 0.0
        self._sampled_at = (0, 0)
        self._begin()
        agent.before_sampled_optimizer.append(self._before_optimizer)
        agent.before_close_backward.append(self._before_backward)
        agent.after_close_backward.append(self._after_backward)
        agent.on_forward.append(self._after_forward)
        agent.on_step.append(self._next_step)
        agent.in_child.append(self._in_child)
        self._next_step()

    def remove(self) -> None:
        agent = self._agent
        agent.before_sampled_optimizer.remove(self._before_optimizer)
        agent.before_close_backward.remove(self._before_backward)
        agent.after_close_backward.remove(self._after_backward)
        agent.on_forward.remove(self._after_forward)
        agent.on_step.remove(self._next_step)
        agent.in_child.remove(self._in_child)
        agent.sampled = False

    def _in_child(self) -> None:
        self._schedule = Schedule(self._agent.config.budget)
        self._inventories = self._characters = self._key = self._optimizers = 0
        self._begin()

    def _begin(self) -> None:
        """Nothing is known of the step yet."""
        self.on = False
        """Whether this step is sampled."""
        self._root: tuple[Any, int] = None, 0
        """Where the graph of the backward that runs begins, and its call-site."""
        self._cost_ns = 0
        self._tensors = self._left_out = 0
        self._forwards = self._passes = 0
        """Forwards and backwards of this step."""
        self._gradients: tuple[list[int], Samples] | None = None
        """Identities of parameters, and samples of their gradients as the last backward left them."""
        self._weights: tuple[list[int], Samples] | None = None
        self._had_gradient: set[int] = set()
        self._held: set[int] = set()

    # -- steps -------------------------------------------------------------------------------------------------

    def _next_step(self) -> None:
        """A step has ended: write what it did to the parameters, and see whether the next one is sampled."""
        agent = self._agent
        if self.on and self._weights is not None:
            with guard("looking at the parameters after a step"):
                begin = monotonic_ns()
                self._finish(agent.step - 1)
                self._account(monotonic_ns() - begin)
        self._begin()
        level = agent.config.level
        step = agent.step
        if agent.optimizers.count != self._optimizers:  # another training, or other parameters in it
            self._optimizers = agent.optimizers.count
            self._schedule.begin_anew(step)
        self.on = agent.sampled = level != "light" and (level == "deep" or self._schedule.sampled(step))
        if level == "deep":
            agent.wake = min(agent.wake, step + 1)
        elif level == "standard":
            agent.wake = min(agent.wake, step + 1 if self.on else self._schedule.next_after(step))

    def _account(self, last_ns: int) -> None:
        agent = self._agent
        cost = self._cost_ns + last_ns
        agent.put(monotonic_ns() - cost, cost, Sampling.code, 0, agent.step - 1, self._tensors, self._left_out, 0)
        # What usual steps take: the time since the sample before, without what the samples took.
        step, at = self._sampled_at
        self._sampled_at = agent.step, agent.last_step_end
        steps = agent.step - step
        if at and steps:
            usual = max(1.0, (agent.last_step_end - at) / steps - (cost if steps == 1 else 0))
            self._usual_ns = min(self._usual_ns or usual, usual)
            self._schedule.account(cost, self._usual_ns)

    def _looking(self) -> bool:
        agent = self._agent
        return self.on and agent.thread == get_ident() and not agent.ended and agent.ring is not None and observable()

    def _after_forward(self, module: Any, model: int, args: Any, kwargs: Any, output: Any) -> None:
        self._forwards += 1
        if self._forwards >= MOST_CALLS:
            self._agent.sampled = False  # a program that serves ends no step; one that acts may yet train

    # -- backward ----------------------------------------------------------------------------------------------

    def _before_backward(self, root: Any, site: int) -> None:
        if not self._looking():
            return
        self._root = getattr(root, "grad_fn", None), site

    def _after_backward(self) -> None:
        (root, site), self._root = self._root, (None, 0)
        if not self._looking():
            return
        begin = monotonic_ns()
        stock = self._stock()
        found = [(key, grad) for key, h in stock.held.items() if (grad := _host(h.parameter.grad)) is not None]
        samples = Samples([grad for _, grad in found])
        self._gradients = [key for key, _ in found], samples
        if root is not None and not samples.finite:
            tell(self._agent.on_lost_gradients, "looking at lost gradients", root, site)
        self._cost_ns += monotonic_ns() - begin
        self._passes += 1
        if self._passes >= MOST_CALLS:  # parameters are updated without an optimizer: this step will not end
            self._begin()
            self._agent.sampled = False

    # -- optimizer ---------------------------------------------------------------------------------------------

    def _before_optimizer(self, optimizer: Any) -> None:
        if not self._looking():
            return
        begin = monotonic_ns()
        try:
            self._agent.optimizers.number(optimizer)  # from here on it is among those in stock
            stock = self._stock()
            everything = {**stock.held, **stock.foreign}
            if self._weights is None:
                self._weights = _weights(everything)
            mine = [
                everything[id(p)] for group in optimizer.param_groups for p in group["params"] if id(p) in everything
            ]
            self._held.update(id(h.parameter) for h in mine)
            self._had_gradient.update(id(h.parameter) for h in mine if h.parameter.grad is not None)
            self._write_gradients(mine)
        except Exception as error:  # noqa: BLE001
            swallow("looking at gradients", error)
        self._cost_ns += monotonic_ns() - begin

    def _write_gradients(self, mine: Sequence[Held]) -> None:
        found = [(h, grad) for h in mine if (grad := _host(h.parameter.grad)) is not None]
        self._tensors += len(found)
        self._left_out += sum(h.parameter.grad is not None for h in mine) - len(found)
        grads = [grad for _, grad in found]
        for (held, _), stat, norm in zip(found, Samples(grads).stats(), norms(grads), strict=True):
            self._put_gradient(held, stat, norm, BEFORE_OPTIMIZER)
        if self._gradients is None:
            return
        keys, samples = self._gradients
        self._gradients = None
        by_key = {id(h.parameter): h for h in mine}
        rest = []
        for key, stat in zip(keys, samples.stats(), strict=True):
            if key in by_key:
                self._put_gradient(by_key[key], stat, float("nan"), AFTER_BACKWARD)
            else:
                rest.append(key)
        if rest:  # they belong to an optimizer that steps later
            self._gradients = rest, samples.some([keys.index(key) for key in rest])

    def _put_gradient(self, held: Held, stat: Stat, norm: float, moment: int) -> None:
        agent = self._agent
        finite = stat.finite and (moment == AFTER_BACKWARD or isfinite(norm))
        flags = held.model_id | moment << 16 | finite << 18 | round(stat.zeros * 255) << 24
        size, name = two_floats(norm, stat.rms), agent.name(held.path)
        agent.put(monotonic_ns(), 0, GradientStat.code, name, agent.step, size, stat.fingerprint, flags)

    # -- parameters and buffers --------------------------------------------------------------------------------

    def _finish(self, step: int) -> None:
        agent = self._agent
        stock = self._stock()
        everything = {**stock.held, **stock.foreign}
        keys, after = _weights(everything)
        assert self._weights is not None
        before_keys, before = self._weights
        known = {key: i for i, key in enumerate(before_keys)}
        old = [known.get(key, -1) for key in keys]
        rms = [stat.rms for stat in before.stats()]
        changes = after.changes(before.some([max(i, 0) for i in old])) if before_keys else [(0.0, 0.0)] * len(keys)
        for key, i, stat, (size, share) in zip(keys, old, after.stats(), changes, strict=True):
            held = everything[key]
            changed = round(share * 255) if i >= 0 else 0  # what was not known before was compared with something else
            flags = (
                held.model_id | changed << 16 | round(stat.zeros * 255) << 24 | stat.finite << 32
                | (key in self._had_gradient) << 33 | (key in self._held) << 34 | (i >= 0) << 35
            )  # fmt: skip
            values = two_floats(rms[i], size) if i >= 0 else two_floats(stat.rms, 0.0)
            name = agent.name(held.path)
            agent.put(monotonic_ns(), 0, WeightStat.code, name, step, values, stat.fingerprint, flags)
        self._tensors += len(keys)
        self._left_out += len(everything) - len(keys) + stock.left_out
        self._write_buffers(stock, step)
        self._write_inventory(stock, step)

    def _write_buffers(self, stock: Stock, step: int) -> None:
        agent = self._agent
        found = [(root, path, plain) for root, path, b in stock.buffers() if (plain := _host(b)) is not None]
        for (root, path, _), stat in zip(found, Samples([b for _, _, b in found]).stats(), strict=True):
            size = two_floats(stat.rms, 0.0)
            agent.put(
                monotonic_ns(), 0, BufferStat.code, agent.name(path), step, size, stat.fingerprint, root.name_id
            )  # fmt: skip
        self._tensors += len(found)

    def _write_inventory(self, stock: Stock, step: int) -> None:
        key = stock.key()
        if key == self._key or self._inventories >= MOST_INVENTORIES or self._agent.ring is None:
            return
        self._key = key
        text = stock.inventory(step).encode()
        self._characters += len(text)
        if self._characters <= MOST_INVENTORY_CHARACTERS:
            self._agent.ring.payload(payload.INVENTORY, self._inventories, text)
            self._inventories += 1

    def _stock(self) -> Stock:
        return Stock(self._agent.roots, self._agent.optimizers.alive())


def _host(tensor: Any) -> Any:
    """What can be read of a tensor without waiting: None where it lies on a device."""
    plain = readable(tensor)
    return plain if plain is not None and plain.device.type == "cpu" else None


def _weights(everything: dict[int, Held]) -> tuple[list[int], Samples]:
    found = [(key, plain) for key, h in everything.items() if (plain := _host(h.parameter)) is not None]
    return [key for key, _ in found], Samples([plain for _, plain in found])
