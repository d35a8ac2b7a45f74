"""What is done to gradients between backward and optimizer: clipping, loss scaling; and how DDP wraps models."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from functools import wraps
from math import hypot, nan
from threading import get_ident
from time import monotonic_ns
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import swallow
from rankscope.capture.inventory import Held, Stock, clean
from rankscope.capture.loss_factor import loss_factor
from rankscope.capture.patches import Patches
from rankscope.capture.sampling import FIRST
from rankscope.capture.source import Source
from rankscope.capture.summed_backward import summed_backward
from rankscope.capture.tensors.tensor_samples import norms, observable, readable
from rankscope.records.gradient_calls import (
    NOT_FINITE,
    OUTSIDE_CLIP,
    SUMMED_TWICE,
    GradientClip,
    GradientSet,
    LossFactor,
    ScalerStep,
    Wrapping,
)
from rankscope.records.record import float_bits, two_floats
from rankscope.records.training import Call

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

NO_SCALE: Final = two_floats(1.0, 0.0)
SHOWN: Final = 6
"""Paths that a record names."""


class GradientCalls(Source):
    """Calls that clip gradients, calls of `GradScaler`, how DDP wraps models, and what a loss was multiplied with last.

    Norms and scales are read where that waits for no device.

    On steps that are not sampled a call of these costs a record; nothing else is looked at.
    """

    name = "gradient-calls"
    emits = (GradientClip, ScalerStep, LossFactor, Wrapping, GradientSet, Call)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        import torch
        from torch.amp import grad_scaler
        from torch.nn.utils import clip_grad

        self._agent = agent
        self._tensor = torch.Tensor
        self._distributed = torch.distributed
        self._is_compiling = torch.compiler.is_dynamo_compiling
        self._is_grad_enabled = torch.is_grad_enabled
        self._patches = Patches()
        self._wrappers: list[weakref.ref[Any]] = []
        self._forget()
        for function in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
            original = getattr(torch.nn.utils, function, None)
            if original is not None:
                watched = self._watch_clip(original, function)
                for owner in (torch.nn.utils, clip_grad):
                    if hasattr(owner, function):
                        self._patches.replace(owner, function, watched)
        scaler = grad_scaler.GradScaler
        self._patches.replace(scaler, "scale", self._watch_scale(scaler.scale))
        self._patches.replace(scaler, "step", self._watch_step(scaler.step))
        self._patches.replace(scaler, "update", self._watch_update(scaler.update))
        module: Any = sys.modules.get("torch.nn.parallel.distributed")
        if module is not None:
            ddp = module.DistributedDataParallel
            # Not `__init__`: its warnings would name our line in place of the user's.
            maker = "_ddp_init_helper" if hasattr(ddp, "_ddp_init_helper") else "__init__"
            self._patches.replace(ddp, maker, self._watch_init(getattr(ddp, maker)))
        agent.before_sampled_optimizer.append(self._before_optimizer)
        agent.before_close_backward.append(self._before_backward)
        agent.after_close_backward.append(self._after_backward)
        agent.on_forward.append(self._on_forward)
        agent.in_child.append(self._forget)

    def remove(self) -> None:
        agent = self._agent
        self._patches.undo()
        agent.before_sampled_optimizer.remove(self._before_optimizer)
        agent.before_close_backward.remove(self._before_backward)
        agent.after_close_backward.remove(self._after_backward)
        agent.on_forward.remove(self._on_forward)
        agent.in_child.remove(self._forget)

    def _forget(self) -> None:
        self._scaler: weakref.ref[Any] | None = None
        """A GradScaler whose scale is in the gradients of the step that is being made."""
        self._skipped = 0
        """Of a scaler, without one that was made between them."""
        self._step = -1
        """The step that the following belongs to."""
        self._clipped: set[int] = set()
        """Identities of the parameters that were given to a clipping."""
        self._passed: dict[int, tuple[int, int, int]] = {}
        """Identity of a wrapper -> forwards through it, past it, and where the last one past it was called."""
        self._holders: dict[int, tuple[weakref.ref[Any], list[int]]] = {}
        """Identity of the first parameter of a clipping -> the parameter, and the optimizers that hold it."""

    def _here(self) -> bool:
        agent = self._agent
        return agent.thread == get_ident() and agent.ring is not None and not agent.ended and not self._is_compiling()

    def _begin(self) -> None:
        """Another step: what was remembered belongs to the one before."""
        if self._agent.step != self._step:
            self._step = self._agent.step
            self._clipped.clear()
            self._passed.clear()

    # -- clipping ----------------------------------------------------------------------------------------------

    def _watch_clip(self, original: Any, function: str) -> Any:
        agent = self._agent

        @wraps(original)
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_compiling() or not self._here():
                return original(parameters, *args, **kwargs)
            begin = monotonic_ns() if agent.timing else 0
            given: Iterable[Any] = ()
            scale = 1.0
            try:
                if agent.sampled or self._scaler is not None:
                    # Of a generator there is but one pass; an empty one is left for torch to complain about.
                    if type(parameters) is GeneratorType:
                        parameters = list(parameters) or parameters
                    given = (parameters,) if isinstance(parameters, self._tensor) else parameters
                    scale = self._scale_in(given)
            except Exception as error:  # noqa: BLE001
                swallow("looking at a clipping", error)
            middle = monotonic_ns() if agent.timing else 0
            result = original(parameters, *args, **kwargs)
            try:
                t = monotonic_ns()
                self._put_clip(function, given, scale, (args, kwargs, result))
                if agent.timing:
                    agent.own_ns += middle - begin + monotonic_ns() - t
                    agent.hidden_ns += agent.wrapper_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a clipping", error)
            return result

        return clip

    def _put_clip(self, function: str, given: Any, scale: float, call: tuple[Any, Any, Any]) -> None:
        agent = self._agent
        args, kwargs, result = call
        limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value", nan))
        count = 0
        if agent.sampled and not isinstance(given, GeneratorType):
            self._begin()
            keys = [id(p) for p in given if p.grad is not None]
            self._clipped.update(keys)
            count = len(keys)
        norm = nan
        if function == "clip_grad_norm_":
            kind = args[1] if len(args) > 1 else kwargs.get("norm_type", 2.0)
            norm = self._number(result) if float(kind) == 2.0 else nan
        elif function == "clip_grads_with_norm_":
            norm = self._number(args[1] if len(args) > 1 else kwargs.get("total_norm"))
        sizes = two_floats(self._number(limit), norm)
        found = (NO_SCALE if scale == 1.0 else two_floats(scale, 0.0)) | count << 32
        flags = agent.site(2) | (scale != 1.0) << 16
        agent.put(monotonic_ns(), 0, GradientClip.code, agent.name(function), agent.step, sizes, found, flags)

    def _number(self, value: Any) -> float:
        """A number, where reading it waits for no device; else NaN."""
        if isinstance(value, (int, float)):
            return float(value)
        if type(value) is not self._tensor or value.device.type != "cpu" or value.numel() != 1:
            return nan
        return float(value.detach()) if observable() else nan

    def _scale_in(self, given: Iterable[Any]) -> float:
        """The loss scale that is still in the gradients of these parameters; 1.0: none."""
        scaler = self._scaler() if self._scaler is not None else None
        if scaler is None:
            return 1.0
        first = next(iter(given), None) if not isinstance(given, GeneratorType) else None
        states = scaler._per_optimizer_states
        keys = self._holders_of(first) or list(states)  # before its first step an optimizer is not known
        unscaled = any(key in states and states[key].get("stage") is not None and states[key]["stage"].value > 0
                       for key in keys)  # fmt: skip
        return 1.0 if unscaled else self._number(scaler._scale)

    def _holders_of(self, parameter: Any) -> list[int]:
        """Identities of the optimizers that hold a parameter; looked up once."""
        known = self._holders.get(id(parameter))
        if known is not None and known[0]() is parameter:
            return known[1]
        found = [
            id(one) for _, one in self._agent.optimizers.alive()
            if any(p is parameter for group in one.param_groups for p in group["params"])
        ]  # fmt: skip
        if found:
            self._holders[id(parameter)] = weakref.ref(parameter), found
        return found

    # -- loss scaling ------------------------------------------------------------------------------------------

    def _watch_scale(self, original: Any) -> Any:
        @wraps(original)
        def scale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_compiling() and scaler._enabled:
                self._scaler = weakref.ref(scaler)
            return original(scaler, *args, **kwargs)

        return scale

    def _watch_update(self, original: Any) -> Any:
        @wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            self._scaler = None
            return original(scaler, *args, **kwargs)

        return update

    def _watch_step(self, original: Any) -> Any:
        agent = self._agent

        @wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not scaler._enabled or not self._here():
                return original(scaler, optimizer, *args, **kwargs)
            before, number, unscaled = agent.optimizer_steps, agent.step, False
            try:
                state = scaler._per_optimizer_states.get(id(optimizer))
                unscaled = bool(state) and state["stage"].value > 0
            except Exception as error:  # noqa: BLE001
                swallow("looking at a scaler", error)
            result = original(scaler, optimizer, *args, **kwargs)
            try:
                begin = monotonic_ns()
                self._put_scaler(scaler, optimizer, number, before != agent.optimizer_steps, unscaled)
                if agent.timing:
                    agent.own_ns += monotonic_ns() - begin
                    agent.hidden_ns += agent.wrapper_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a scaler's step", error)
            return result

        return step

    def _put_scaler(self, scaler: Any, optimizer: Any, step: int, stepped: bool, unscaled: bool) -> None:
        agent = self._agent
        found = scaler._per_optimizer_states[id(optimizer)].get("found_inf_per_device") or {}
        # A fused optimizer leaves the update out by itself.
        skipped = not stepped or any(self._number(value) > 0 for value in found.values())
        flags = agent.site(2) | agent.optimizers.number(optimizer) << 16 & 0xFF0000 | skipped << 24 | unscaled << 25
        name, scale = agent.name(type(optimizer).__name__), float_bits(self._number(scaler._scale))
        agent.put(monotonic_ns(), 0, ScalerStep.code, name, step, scale, 0, flags)
        if not skipped:
            self._skipped = 0
            return
        self._skipped += 1
        if self._skipped & (self._skipped - 1) == 0 and observable():
            self._put_not_finite()

    # -- backward ----------------------------------------------------------------------------------------------

    def _before_backward(self, root: Any, site: int) -> None:
        agent = self._agent
        if not (agent.sampled or self._suspicious()) or agent.ring is None:
            return
        if type(root) is self._tensor and root.numel() == 1:
            factor, micro = float_bits(loss_factor(root)), agent.micro_batches & 0xFFFF
            agent.put(monotonic_ns(), 0, LossFactor.code, site, agent.step, factor, 0, micro)
            if agent.step < FIRST and not micro and self._has_group():
                self._put_summed(root)

    def _has_group(self) -> bool:
        return bool(self._distributed.is_available() and self._distributed.is_initialized())

    def _put_summed(self, loss: Any) -> None:
        """Parameters whose gradients go through an operation that sums over ranks in both passes."""
        begin, agent = monotonic_ns(), self._agent
        leaves, kinds = summed_backward(loss)
        if leaves:
            stock = Stock(agent.roots, agent.optimizers.alive())
            known = {**stock.held, **stock.foreign}
            held = [known[id(leaf)] for leaf in leaves if id(leaf) in known]
            self._put_set(held[::-1], 0, len(leaves) | len(known) << 31, SUMMED_TWICE)
            agent.put(monotonic_ns(), 0, Call.code, agent.name(f"{', '.join(kinds)}.backward"), agent.step, 0, 1, 0)
        if agent.timing:
            agent.own_ns += monotonic_ns() - begin

    def _after_backward(self) -> None:
        if self._suspicious() and self._agent.ring is not None and self._here() and observable():
            self._put_not_finite()

    def _suspicious(self) -> bool:
        """Whether this backward is one of many more than a step usually has: optimizer steps are left out, by hand."""
        before = self._agent.micro_batches
        # Number 4, 8, 16, ... of them.
        return before >= self._agent.unusual and before & (before + 1) == 0

    def _put_not_finite(self) -> None:
        """Which gradients are not finite now, those nearest to the loss first."""
        agent = self._agent
        stock = Stock(agent.roots, agent.optimizers.alive())
        found = [(h, grad) for h in stock.held.values() if (grad := _host(h.parameter.grad)) is not None]
        sizes = norms([grad for _, grad in found])
        bad = [h for (h, _), size in zip(found, sizes, strict=True) if not size < float("inf")]
        if bad:
            rest = hypot(*(size for size in sizes if size < float("inf")))
            last = bad[-1] is found[-1][0]
            self._put_set(bad[::-1], two_floats(nan, rest), len(bad) | len(found) << 31, NOT_FINITE | last << 26)

    def _put_set(self, some: list[Held], sizes: int, counts: int, flags: int) -> None:
        agent = self._agent
        flags |= (agent.micro_batches & 0xFFFF) << 10
        name = agent.name(" ".join(h.path for h in some[:SHOWN])) if some else 0
        agent.put(monotonic_ns(), 0, GradientSet.code, name, agent.step, sizes, counts, flags)

    # -- optimizer ---------------------------------------------------------------------------------------------

    def _before_optimizer(self, optimizer: Any) -> None:
        agent = self._agent
        begin = monotonic_ns()
        try:
            if self._here() and observable():
                self._begin()
                if self._clipped:
                    self._put_coverage(optimizer)
                for wrapper in [one for ref in self._wrappers if (one := ref()) is not None]:
                    self._put_wrapping(wrapper)
        except Exception as error:  # noqa: BLE001
            swallow("looking at clipped gradients", error)
        if agent.timing:
            agent.own_ns += monotonic_ns() - begin

    def _put_coverage(self, optimizer: Any) -> None:
        """Which gradients of an optimizer no clipping has covered; nothing where it has covered none of them."""
        agent = self._agent
        mine = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        outside = [p for p in mine if id(p) not in self._clipped]
        if len(outside) == len(mine):
            return
        stock = Stock(agent.roots, agent.optimizers.alive()) if outside else None
        known = {**stock.held, **stock.foreign} if stock is not None else {}
        held = [known[id(p)] for p in outside if id(p) in known]
        sizes = [norms([g for p in part if (g := _host(p.grad)) is not None])
                 for part in (outside, [p for p in mine if id(p) in self._clipped])]  # fmt: skip
        flags = OUTSIDE_CLIP | (agent.optimizers.number(optimizer) & 255) << 2
        both = two_floats(hypot(*sizes[0]), hypot(*sizes[1]))
        self._put_set(held, both, len(outside) | len(mine) << 31, flags)

    # -- wrappers ----------------------------------------------------------------------------------------------

    def _watch_init(self, original: Any) -> Any:
        @wraps(original)
        def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            original(wrapper, *args, **kwargs)
            try:
                self._wrappers = [ref for ref in self._wrappers if ref() is not None]
                self._wrappers.append(weakref.ref(wrapper))
            except Exception as error:  # noqa: BLE001
                swallow("noting a wrapper", error)

        return init

    def _on_forward(self, module: Any, name: int, args: Any, kwargs: Any, output: Any) -> None:
        if not self._wrappers or not self._is_grad_enabled():
            return
        self._begin()
        module = module._modules.get("_orig_mod") or module
        site = self._agent.site(2)
        for ref in self._wrappers:
            wrapper = ref()
            if wrapper is None:
                continue
            through, past, line = self._passed.get(id(wrapper), (0, 0, 0))
            if module is wrapper:
                self._passed[id(wrapper)] = through + 1, past, line
            elif any(one is module for one in wrapper.module.modules()):
                self._passed[id(wrapper)] = through, past + 1, site

    def _put_wrapping(self, wrapper: Any) -> None:
        agent = self._agent
        inner = wrapper.module
        inner = inner._modules.get("_orig_mod") or inner
        models = {root.name_id: model for root in agent.roots if (model := root.model()) is not None}
        whole = [name for name, model in models.items() if model is inner]
        if not whole:  # a program that goes past it calls the parts, which then are models of their own
            parts = {id(module) for module in inner.modules()}
            whole = [name for name, model in models.items() if id(model) in parts]
        known = {id(p) for p in wrapper._module_parameters}
        ignored = bool(wrapper.parameters_to_ignore)
        trained = [(path, p) for path, p in inner.named_parameters() if p.requires_grad]
        unknown = [] if ignored else [clean(path) for path, p in trained if id(p) not in known]
        through, past, line = self._passed.get(id(wrapper), (0, 0, 0))
        group = wrapper.process_group
        members = agent.name(",".join(map(str, self._distributed.get_process_group_ranks(group))))
        names = agent.name(" ".join(unknown[:SHOWN])) if unknown else 0
        a = len(trained) | len(unknown) << 31
        b = members | min(through, 4095) << 16 | min(past, 4095) << 28 | line << 40
        c = (
            names | bool(wrapper.broadcast_buffers) << 16 | bool(wrapper.require_backward_grad_sync) << 17
            | ignored << 18
        )  # fmt: skip
        for name in whole or [agent.name(type(inner).__name__)]:
            agent.put(monotonic_ns(), 0, Wrapping.code, name, agent.step, a, b, c)


def _host(tensor: Any) -> Any:
    """What can be read of a tensor without waiting: None where it lies on a device."""
    plain = readable(tensor)
    return plain if plain is not None and plain.device.type == "cpu" else None
