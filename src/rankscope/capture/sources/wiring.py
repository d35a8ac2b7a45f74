"""How models and optimizers are wired: gradients that are used twice, odd parts of models, averages of weights."""

from __future__ import annotations

import sys
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.inventory import Stock
from rankscope.capture.patches import Patches
from rankscope.capture.reuse import Used, used_by, watched
from rankscope.capture.sampling import FIRST
from rankscope.capture.source import Source
from rankscope.capture.tensors import averages, odd_parts
from rankscope.capture.tensors.odd_parts import Loaded, Part
from rankscope.capture.tensors.tensor_samples import Samples, observable
from rankscope.records.wiring import FREEZE_WITHOUT_EFFECT, LOADED, UNREGISTERED, Average, GradientReuse, OddPart

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MIX = 0xD1342543DE82EF95


class Wiring(Source):
    """What becomes of gradients that were used, averages of weights, and odd parts of models, on sampled steps.

    Parts that are not registered, were loaded, or should have been frozen are looked for in the first steps, and then
    ever more seldom. Between the sampled steps it only tests whether gradients are watched.
    """

    name = "wiring"
    emits = (GradientReuse, OddPart, Average)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        import torch

        self._agent = agent
        self._loaded = Loaded()
        self._forget()
        self._patches = Patches()
        load = torch.nn.Module.load_state_dict
        self._patches.replace(torch.nn.Module, "load_state_dict", self._watch_load(load))
        agent.before_sampled_optimizer.append(self._before_optimizer)
        agent.after_sampled_optimizer.append(self._after_sampled)
        agent.in_child.append(self._forget)

    def remove(self) -> None:
        self._patches.undo()
        self._agent.before_sampled_optimizer.remove(self._before_optimizer)
        self._agent.after_sampled_optimizer.remove(self._after_sampled)
        self._used.clear()
        self._listen()
        self._agent.in_child.remove(self._forget)

    def _forget(self) -> None:
        self._used: dict[int, Used] = {}
        """By number of the optimizer, from a step that was sampled to its next one."""
        self._listen()
        self._searched = -1
        self._written: dict[tuple[str, str, int], Part] = {}

    def _listen(self) -> None:
        """Be told of backwards and optimizers while gradients are watched, and no longer."""
        agent = self._agent
        for told, mine in (
            (agent.before_backward, self._before_backward),
            (agent.after_backward, self._after_backward),
            (agent.after_optimizer, self._after_optimizer),
        ):
            there: list[Any] = told  # of three signatures
            if self._used and mine not in there:
                there.append(mine)
            elif not self._used and mine in there:
                there.remove(mine)

    def _looking(self) -> bool:
        agent = self._agent
        return agent.thread == get_ident() and not agent.ended and agent.ring is not None and observable()

    def _count(self, begin: int) -> None:
        if self._agent.timing:
            self._agent.own_ns += monotonic_ns() - begin

    # -- gradients ---------------------------------------------------------------------------------------------

    def _before_backward(self, root: Any, site: int) -> None:
        if self._looking():
            begin = monotonic_ns()
            for used, optimizer in watched(self._used, self._agent.optimizers.alive()):
                used.before_backward(optimizer, site)
            self._count(begin)

    def _after_backward(self) -> None:
        if self._looking():
            begin = monotonic_ns()
            for used, optimizer in watched(self._used, self._agent.optimizers.alive()):
                used.after_backward(optimizer)
            self._count(begin)

    def _before_optimizer(self, optimizer: Any) -> None:
        agent = self._agent
        if self._searched != agent.step and self._looking():
            begin = monotonic_ns()
            self._searched = agent.step
            agent.optimizers.number(optimizer)
            self._search(agent.step)
            self._count(begin)

    def _after_optimizer(self, optimizer: Any) -> None:
        """Its gradients have been used again: say what became of those that were watched."""
        if not self._looking():
            return
        begin = monotonic_ns()
        number = self._agent.optimizers.number(optimizer)
        used = self._used.pop(number, None)
        if used is not None and used.gradients and used.site:
            self._put_reuse(optimizer, number, used)
        self._listen()
        self._count(begin)

    def _after_sampled(self, optimizer: Any) -> None:
        if not self._looking():
            return
        begin = monotonic_ns()
        self._used[self._agent.optimizers.number(optimizer)] = used_by(optimizer)
        self._listen()
        self._count(begin)

    def _put_reuse(self, optimizer: Any, number: int, used: Used) -> None:
        agent = self._agent
        counts = len(used.gradients) | used.reused << 16
        name = agent.name(type(optimizer).__name__)
        agent.put(
            monotonic_ns(), 0, GradientReuse.code, name, agent.step, used.site, counts, number & 255 | used.unread << 8
        )  # fmt: skip

    # -- parts of models ---------------------------------------------------------------------------------------

    def _watch_load(self, original: Any) -> Any:
        loaded = self._loaded

        @wraps(original)
        def load_state_dict(module: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                loaded.note(module)
            except Exception as error:  # noqa: BLE001
                swallow("noting a loaded module", error)
            return original(module, *args, **kwargs)

        return load_state_dict

    def _search(self, step: int) -> None:
        stock = Stock(self._agent.roots, self._agent.optimizers.alive())
        self._look_for_averages(set(stock.held) | set(stock.foreign))
        if step >= FIRST and step & (step - 1):
            return
        known = {id(p) for root in self._agent.roots if (m := root.model()) is not None for p in m.parameters()}
        held = {id(p) for _, one in self._agent.optimizers.alive() for g in one.param_groups for p in g["params"]}
        for root in self._agent.roots:
            model = root.model()
            if model is None:
                continue
            for path, owners, found, mine in odd_parts.hidden(model, known, held):
                training = all(getattr(owner, "training", True) for owner in owners)
                kind = type(owners[0]).__name__
                self._put_part(root, Part(path, UNREGISTERED, _elements(found), len(found), len(mine), training, kind))
            for path, module, code in odd_parts.idle_freezes(model):
                all_of = [p for p in module.parameters() if p.requires_grad]
                mine = [p for p in all_of if id(p) in held]
                where = odd_parts.place(code)
                self._put_part(
                    root, Part(path or root.name, FREEZE_WITHOUT_EFFECT, _elements(all_of), len(all_of), len(mine),
                               module.training, where)
                )  # fmt: skip
            loaded = self._loaded.elements(model)
            if loaded:
                self._put_part(root, Part(root.name, LOADED, loaded, 0, 0, model.training, ""))

    def _put_part(self, root: Any, part: Part) -> None:
        key = root.name, part.path, part.why
        if self._written.get(key) == part:
            return
        self._written[key] = part
        agent = self._agent
        flags = root.name_id | part.why << 16 | part.training << 20
        if part.place:
            flags |= agent.name(part.place) << 32
        counts = part.parameters | part.held << 32
        name = agent.name(part.path)
        agent.put(monotonic_ns(), 0, OddPart.code, name, agent.step, part.elements, counts, flags)

    # -- averages ----------------------------------------------------------------------------------------------

    def _look_for_averages(self, known: set[int]) -> None:
        agent = self._agent
        for one in averages.averages(sys._getframe(2), known):
            print = 0
            for stat in Samples(one.tensors).stats():
                print = (print * MIX + stat.fingerprint) & (1 << 64) - 1
            signed = print - (1 << 64) if print >> 63 else print
            flags = agent.name(one.kind) | one.waits << 16
            agent.put(
                monotonic_ns(), 0, Average.code, agent.name(one.name), agent.step, len(one.tensors), signed, flags
            )  # fmt: skip


def _elements(parameters: list[Any]) -> int:
    return sum(p.numel() for p in parameters)
