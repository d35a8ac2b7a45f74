"""The forward pass: each call of a root module, and on deep steps each module inside it."""

from __future__ import annotations

from threading import get_ident
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.deep import DeepRecorder
from rankscope.capture.patches import Patches
from rankscope.capture.source import Source
from rankscope.records.training import Forward, Module, Subnormals

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


class Modules(Source):
    """Calls of modules, by replacing `torch.nn.Module.__call__`.

    Global hooks would cost 1.8 µs for each module of a model and would be traced into compiled graphs. The
    replacement costs a tenth of that, and compiled code never sees it: the name is one that dynamo skips as a frame
    of torch's own, and while it traces, it calls the original at once.
    """

    name = "modules"
    emits = (Forward, Module, Subnormals)
    stage = "forward"

    def install(self, agent: Agent) -> None:
        import torch

        self._patches = Patches()
        self._agent = agent
        self._models: dict[int, int] = {}
        self._model_counts: dict[str, int] = {}
        self._shapes: dict[Any, int] = {}
        self._trained: set[int] = set()
        deep = DeepRecorder(agent)
        original = torch.nn.Module.__call__
        is_compiling = torch.compiler.is_compiling
        root = self._root_call
        phase = agent.name("forward")

        def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(self, *args, **kwargs)
            if agent.depth:
                if agent.deep and agent.thread == get_ident():
                    return deep.call(original, self, args, kwargs)
                return original(self, *args, **kwargs)
            if agent.thread != get_ident() or agent.ended:
                return original(self, *args, **kwargs)
            return root(original, phase, self, args, kwargs)

        try:
            from torch._C._dynamo.eval_frame import skip_code

            skip_code(_wrapped_call_impl.__code__)
        except ImportError:
            pass
        self._patches.replace(torch.nn.Module, "__call__", _wrapped_call_impl)

    def remove(self) -> None:
        self._patches.undo()

    def _root_call(self, original: Any, phase: int, module: Any, args: Any, kwargs: Any) -> Any:
        agent = self._agent
        t0 = monotonic_ns()
        try:
            if agent.ring is None:
                agent.open()
            values = self._describe(module, args, kwargs)
        except Exception as error:  # noqa: BLE001
            swallow("describing a forward", error)
            values = (0, 0, 0)
        before, agent.phase = agent.phase, phase
        agent.depth = 1
        cpu = thread_time_ns()
        t1 = monotonic_ns()
        try:
            return original(module, *args, **kwargs)
        finally:
            t2 = monotonic_ns()
            agent.depth = 0
            agent.phase = before
            try:
                name, elements, flags = values
                agent.put(t1, t2 - t1, 2, name, agent.step, elements, thread_time_ns() - cpu, flags)
                agent.own_ns += t1 - t0 + monotonic_ns() - t2
            except Exception as error:  # noqa: BLE001
                swallow("recording a forward", error)

    def _describe(self, module: Any, args: Any, kwargs: Any) -> tuple[int, int, int]:
        """(name id, elements of the inputs, flags) of one root call."""
        import torch

        agent = self._agent
        inner = getattr(module, "module", None)
        inner = getattr(inner or module, "_orig_mod", inner or module)
        model = self._models.get(id(inner))
        if model is None:
            # A name for each model object; ids may be reused after its death, which then counts as the same model.
            kind = type(inner).__name__
            number = self._model_counts[kind] = self._model_counts.get(kind, -1) + 1
            model = self._models[id(inner)] = agent.name(f"{kind}#{number}" if number else kind)
        grad = torch.is_grad_enabled()
        training = bool(module.training)
        if grad and training:
            self._trained.add(model)
        elements, shapes = _sizes(args, kwargs)
        shape = self._shapes.get(shapes)
        if shape is None:
            shape = self._shapes[shapes] = agent.name(" ".join(str(list(x)) for x in shapes) or "()")
        flags = (
            model
            | shape << 16
            | training << 32
            | grad << 33
            | torch.is_autocast_enabled() << 34
            | (hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None) << 35
            | (model in self._trained) << 36
        )
        return model, elements, flags


def _sizes(args: Any, kwargs: Any) -> tuple[int, tuple[Any, ...]]:
    """Elements and shapes of the tensors among the arguments, one level into lists and dictionaries."""
    elements = 0
    shapes = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if hasattr(value, "shape") and hasattr(value, "numel"):
            elements += value.numel()
            shapes.append(value.shape)
        elif isinstance(value, (list, tuple, dict)):
            for item in list(value.values() if isinstance(value, dict) else value)[:32]:
                if hasattr(item, "shape") and hasattr(item, "numel"):
                    elements += item.numel()
                    shapes.append(item.shape)
    return elements, tuple(shapes)
