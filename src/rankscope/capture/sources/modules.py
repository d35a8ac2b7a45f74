"""The forward pass: each call of a root module, and on deep steps each module inside it."""

from __future__ import annotations

import weakref
from functools import partial
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.deep import DeepRecorder
from rankscope.capture.inventory import Root
from rankscope.capture.listeners import tell
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.activations import ActivationStat, PredictionStat, UnitStat
from rankscope.records.training import Forward, Module, Subnormals

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


_Known = tuple["weakref.ref[Any]", int, int, "weakref.ref[Any]"]
"""The module that is called, its model's name, whether it is compiled, and the user's model inside of it."""
"""A module that was called by user code: itself, its name id (0: it has no parameters), 1 for a compile wrapper."""


class Modules(Source):
    """Calls of modules, by replacing `torch.nn.Module.__call__`.

    Global hooks would cost 1.8 µs for each module of a model and would be traced into compiled graphs. The
    replacement takes the place of torch's own, for a module inside another one at no more than its price, and compiled
    code never sees it: dynamo passes over its frame, and while it traces through it, the original is called at once.
    """

    name = "modules"
    emits = (Forward, Module, Subnormals, ActivationStat, UnitStat, PredictionStat)
    stage = "forward"

    def install(self, agent: Agent) -> None:
        import torch

        self._patches = Patches()
        self._agent = agent
        self._models: dict[int, _Known] = {}
        self._model_ids: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._model_counts: dict[str, int] = {}
        self._shapes: dict[Any, tuple[int, int]] = {}
        self._trained: set[int] = set()
        self._modes: dict[int, int] = {}
        """Model's name id -> whether its last call was in training mode (1), with gradients (2)."""
        self._tensor = torch.Tensor
        self._is_grad_enabled = torch.is_grad_enabled
        self._is_autocast_enabled = _autocast(torch)
        self._deep = deep = DeepRecorder(agent)
        original = torch.nn.Module.__call__
        is_compiling = torch.compiler.is_compiling
        is_dynamo_compiling = torch.compiler.is_dynamo_compiling
        # What torch's own `__call__` does, one frame less; whoever replaced it before us is called.
        direct = getattr(original, "__qualname__", "") == "Module._wrapped_call_impl"
        dynamo = (
            torch._C._dynamo.eval_frame.get_eval_frame_callback
            if hasattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback")
            else _no_callback
        )
        root = self._root_call
        phase = agent.name("forward")

        def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
            # The first test is a constant for dynamo, which therefore never sees what follows.
            if is_dynamo_compiling():
                return original(self, *args, **kwargs)
            if agent.depth:
                # Inside compiled code the modules are called by dynamo's frames: each would be compiled alone.
                if deep.on and agent.thread == get_ident() and dynamo() is None:
                    return deep.call(original, self, args, kwargs)
                if direct and self._compiled_call_impl is None:
                    return self._call_impl(*args, **kwargs)
                return original(self, *args, **kwargs)
            if agent.thread != get_ident() or agent.ended or is_compiling():
                return original(self, *args, **kwargs)
            return root(original, phase, self, args, kwargs)

        self._patches.replace(torch.nn.Module, "__call__", _wrapped_call_impl)

    def remove(self) -> None:
        self._patches.undo()
        self._deep.remove()

    def _root_call(self, original: Any, phase: int, module: Any, args: Any, kwargs: Any) -> Any:
        agent = self._agent
        timing = agent.timing
        t0 = monotonic_ns() if timing else 0
        name = -1  # until it is known; 0: not worth a record
        elements = flags = 0
        try:
            known = self._models.get(id(module))
            if known is None or known[0]() is not module:
                known = self._new(module)
            name = known[1]
            if name:
                if agent.ring is None:
                    agent.open()
                elements, flags = self._describe(known, module, args, kwargs)
                if agent.sampled:
                    self._deep.sampled()
        except Exception as error:  # noqa: BLE001
            swallow("describing a forward", error)
        if not name:
            return original(module, *args, **kwargs)  # a loss or an activation: its record would cost more than it
        evaluates = not flags >> 33 & 1 and bool(agent.before_evaluation)
        if evaluates:
            tell(agent.before_evaluation, "looking at an evaluation", module, flags & 0xFFFF, args, kwargs)
        before, agent.phase = agent.phase, phase
        agent.depth = 1
        output = None
        t1 = monotonic_ns()
        try:
            output = original(module, *args, **kwargs)
            return output
        finally:
            t2 = monotonic_ns()
            agent.depth = 0
            agent.phase = before
            if evaluates:
                tell(agent.after_evaluation, "looking at an evaluation", module, flags & 0xFFFF)
            if output is not None and (agent.sampled or flags >> 32 & 3 != self._modes.get(name)):
                self._tell(module, max(name, 0), flags >> 32 & 3, args, kwargs, output)
            try:
                agent.put(t1, t2 - t1, Forward.code, max(name, 0), agent.step, elements, 0, flags)
                if not agent.step:
                    self._deep.called()
                if timing:
                    agent.own_ns += t1 - t0 + monotonic_ns() - t2
                    agent.hidden_ns += agent.wrapper_ns
                    agent.hooks += 1
            except Exception as error:  # noqa: BLE001
                swallow("recording a forward", error)

    def _tell(self, module: Any, name: int, mode: int, args: Any, kwargs: Any, output: Any) -> None:  # noqa: PLR0917
        """On a sampled step, or where a model is called in another mode than before, tell who looks at forwards."""
        agent = self._agent
        self._modes[name] = mode
        told = agent.on_forward if agent.sampled else agent.on_turn
        tell(told, "looking at a forward", module, name, args, kwargs, output)

    def _describe(self, known: _Known, module: Any, args: Any, kwargs: Any) -> tuple[int, int]:
        """(elements of the inputs, flags) of one root call."""
        _, model, compiled, inner = known
        user = inner() or module
        if module._compiled_call_impl is not None:
            compiled = 1
        flags = model | compiled << 35
        if user.training:
            flags |= 1 << 32
        if self._is_grad_enabled():
            flags |= 1 << 33
            if flags >> 32 & 1:
                self._trained.add(model)
        if self._is_autocast_enabled():
            flags |= 1 << 34
        if model in self._trained:
            flags |= 1 << 36
        shapes = _shapes(args, kwargs, self._tensor)
        shape = self._shapes.get(shapes)
        if shape is None:
            text = " ".join(str(list(x)) for x in shapes)
            shape = self._shapes[shapes] = (self._agent.name(text or "()"), sum(x.numel() for x in shapes))
        return shape[1], flags | shape[0] << 16

    def _new(self, module: Any) -> _Known:
        """A name for each model object, whatever wraps it (0 without parameters); and the paths of its modules."""
        inner = _unwrapped(module)
        if next(inner.parameters(), None) is None:
            name = 0
        else:
            known = self._model_ids.get(id(inner))
            if known is None or known[0]() is not inner:
                kind = type(inner).__name__
                number = self._model_counts[kind] = self._model_counts.get(kind, -1) + 1
                shown = f"{kind}#{number}" if number else kind
                name = self._agent.name(shown)
                known = self._model_ids[id(inner)] = (weakref.ref(inner), name)
                self._agent.roots[:] = [root for root in self._agent.roots if root.model() is not None]
                self._agent.roots.append(Root(shown, name, weakref.ref(inner), weakref.ref(module)))
                self._deep.learn(inner, name)
            name = known[1]
        entry = self._models[id(module)] = (
            weakref.ref(module), name, int("_orig_mod" in module._modules), weakref.ref(inner)
        )  # fmt: skip
        return entry


def _unwrapped(module: Any) -> Any:
    """The user's model inside DDP, FSDP, DataParallel and torch.compile."""
    while True:
        # A scripted module's has no `get`.
        inner = module._modules["_orig_mod"] if "_orig_mod" in module._modules else None  # noqa: SIM401
        if inner is None and type(module).__module__.startswith(("torch.nn.parallel.", "torch.distributed.")):
            inner = module._modules.get("module") or module._modules.get("_fsdp_wrapped_module")
        if inner is None:
            return module
        module = inner


def _no_callback() -> None:
    """What older versions of torch cannot tell."""


def _autocast(torch: Any) -> Any:
    """Whether autocast is on; asks nothing that would initialise a device."""
    enabled = torch.is_autocast_enabled
    on: Any = partial(enabled, "cpu") if torch.version.cuda is None else lambda: enabled("cuda") or enabled("cpu")
    some: Any = getattr(torch._C, "_is_any_autocast_enabled", None)  # quicker: it is asked no device by name
    return on if some is None else lambda: some() and on()


def _shapes(args: Any, kwargs: Any, tensor: type) -> tuple[Any, ...]:
    """Shapes of the tensors among the arguments, one level into lists and dictionaries."""
    if len(args) == 1 and not kwargs and isinstance(args[0], tensor):
        return (args[0].shape,)  # type: ignore[attr-defined]
    shapes = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, tensor):
            shapes.append(value.shape)  # type: ignore[attr-defined]
        elif isinstance(value, (list, tuple, dict)):
            for item in list(value.values() if isinstance(value, dict) else value)[:32]:
                if isinstance(item, tensor):
                    shapes.append(item.shape)  # type: ignore[attr-defined]
    return tuple(shapes)
