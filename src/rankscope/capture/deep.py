"""The few steps that are recorded module by module: time, outputs, subnormal numbers, precision inside autocast."""

from __future__ import annotations

import inspect
import weakref
from fnmatch import fnmatchcase
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import swallow
from rankscope.capture.listeners import tell
from rankscope.capture.tensors.activations import Activations
from rankscope.capture.tensors.tensor_samples import observable
from rankscope.records.training import Module, Subnormals

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

FIRST_STEPS = 3
CALLS_OF_A_FIRST_STEP = 16
"""Root calls (models, losses, micro-batches) that may belong to step 0, which is recorded deeply."""
SAMPLE = 1024


def _power_of_four(step: int) -> bool:
    return step & (step - 1) == 0 and step.bit_length() % 2 == 1


def _next_power_of_four(step: int) -> int:
    """The smallest one above `step`."""
    bits = step.bit_length()
    return 1 << (bits + bits % 2)


class DeepRecorder:
    """Records one call of a module inside a root module; a step is deep on all ranks or on none.

    Deep are steps 0 to 3 and then powers of four (4, 16, 64, ...): the same on all ranks without talking.
    Modules whose path matches `Config.modules` are recorded on every step. Outputs are looked at on deep steps and on
    sampled ones.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._paths: dict[int, int] = {}
        self._chosen: set[int] = set()
        self._classes: dict[type, int] = {}
        self._models: dict[int, int] = {}
        """Module -> name id of the model that it was first found in."""
        self._activations = Activations(agent)
        self._looking = False
        """Whether outputs are looked at in this step."""
        self._children = 0
        self._calls = 0
        self.on = False
        """Whether calls of inner modules have to come here at all."""
        agent.on_step.append(self._next_step)
        agent.on_config.append(self._configured)
        self._next_step()

    def remove(self) -> None:
        """Leave the agent."""
        self._agent.on_step.remove(self._next_step)
        self._agent.on_config.remove(self._configured)
        self._activations.remove()

    def learn(self, model: Any, name: int) -> None:
        """Take the paths of a model that is called for the first time; `name`: its name id."""
        learn_paths(model)
        glob = self._agent.config.modules
        for module in model.modules():
            path = _find_path(module)
            self._paths.pop(id(module), None)
            self._models[id(module)] = name
            if glob and path is not None and fnmatchcase(path, glob):
                self._chosen.add(id(module))
            else:
                self._chosen.discard(id(module))
        self._next_step()

    def _configured(self) -> None:
        """The glob may have changed: choose anew among all modules that are known."""
        glob = self._agent.config.modules
        self._chosen = {id for id, (_, path) in _known_paths.items() if glob and fnmatchcase(path, glob)}
        self._next_step()

    def _next_step(self) -> None:
        agent = self._agent
        # A process that only serves ends no step: its calls count instead.
        step = agent.step or max(0, self._calls - CALLS_OF_A_FIRST_STEP)
        level = agent.config.level
        if level == "standard":
            agent.deep = step <= FIRST_STEPS or _power_of_four(step)
        else:
            agent.deep = level == "deep"
        agent.wake = min(agent.wake, step + 1 if agent.deep or not step else _next_power_of_four(step))
        self.on = agent.deep or (bool(self._chosen) and agent.governor.modules)
        self._activations.next_step()
        self._looking = agent.deep and self._activations.wanted()

    def sampled(self) -> None:
        """A root module is called in a sampled step: which ones these are is decided when `_next_step` is over."""
        if not self._looking and self._activations.wanted():
            self._looking = self.on = True

    def called(self) -> None:
        """A root module has been called before any step has ended."""
        self._calls += 1
        self._next_step()

    def call(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Call `original(module, ...)` and record it."""
        agent = self._agent
        recorded = agent.deep or id(module) in self._chosen
        if not recorded and not self._looking:
            return original(module, *args, **kwargs)
        self._children += 1
        before = self._children
        t0 = monotonic_ns()
        agent.depth += 1
        t1 = monotonic_ns()
        if agent.timing:
            agent.own_ns += t1 - t0
        try:
            output = original(module, *args, **kwargs)
        finally:
            t2 = monotonic_ns()
            agent.depth -= 1
        try:
            leaf = self._children == before
            path = self._path(module)
            if recorded:
                self._record(module, path, args, output, t1, t2, leaf)
            if agent.timing:
                agent.own_ns += monotonic_ns() - t2
                agent.hidden_ns += agent.wrapper_ns
                agent.hooks += 1
            if leaf and self._looking:  # counts its time by itself
                model = self._models.get(id(module), 0)
                self._activations.look(module, path, model, output)
                tell(agent.on_leaf, "looking at a layer's input", module, path, model, args)
        except Exception as error:  # noqa: BLE001
            swallow("recording a module", error)
        return output

    def _path(self, module: Any) -> int:
        """Name id of its path."""
        path = self._paths.get(id(module))
        if path is None:
            path = self._paths[id(module)] = self._agent.name(_find_path(module) or type(module).__name__)
        return path

    def _record(  # noqa: PLR0917  hot
        self, module: Any, path: int, args: Any, output: Any, t1: int, t2: int, leaf: bool
    ) -> None:
        import torch

        agent = self._agent
        kind = type(module)
        class_id = self._classes.get(kind)
        if class_id is None:
            class_id = self._classes[kind] = agent.name(_class_place(kind))
        matrices = [p for p in module._parameters.values() if p is not None and p.dim() >= 2]
        autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        full = autocast and bool(matrices) and _full_precision_product(matrices, args, output)
        modes = torch.is_grad_enabled() << 3 | bool(module.training) << 4
        flags = full | autocast << 1 | leaf << 2 | modes | class_id << 16
        agent.put(t1, t2 - t1, Module.code, path, agent.step, sum(p.numel() for p in matrices), 0, flags)
        if not leaf or not agent.deep:
            return
        for parameter in matrices:
            self._subnormals(path, parameter, 0)
        if isinstance(output, torch.Tensor):
            self._subnormals(path, output, 1)

    def _subnormals(self, name: int, tensor: Any, activation: int) -> None:
        import torch

        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_floating_point():
            return
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.numel() == 0:
            return  # a device tensor would need a sync to be read
        if not observable():
            return
        flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach()[:1].reshape(-1)
        sample = flat[:: max(1, flat.numel() // SAMPLE)]
        size = sample.abs()
        count = int(((size < torch.finfo(tensor.dtype).tiny) & (size > 0)).sum())
        if count:
            agent = self._agent
            agent.put(monotonic_ns(), 0, Subnormals.code, name, agent.step, count, sample.numel(), activation)


_known_paths: dict[int, tuple[weakref.ref[Any], str]] = {}


def learn_paths(root: Any) -> None:
    """Remember the path of every module in `root`."""
    for name, module in root.named_modules():
        path = name.removeprefix("_orig_mod.").removeprefix("module.").removeprefix("_orig_mod.")
        if path and _find_path(module) is None:
            _known_paths[id(module)] = (weakref.ref(module), path)


def _find_path(module: Any) -> str | None:
    known = _known_paths.get(id(module))
    return known[1] if known is not None and known[0]() is module else None


def _class_place(kind: type) -> str:
    """`Class|file:line` of the class's forward, for the report's source lines."""
    try:
        code = kind.forward.__code__  # type: ignore[attr-defined]
    except AttributeError:
        return f"{kind.__name__}|"
    return f"{kind.__name__}|{inspect.unwrap(kind.forward).__code__.co_filename}:{code.co_firstlineno}"  # type: ignore[attr-defined]


def _full_precision_product(matrices: list[Any], args: Any, output: Any) -> bool:
    """Whether a floating input went through a matrix of this module and came out in full precision."""
    import torch

    tensor = next((x for x in args if isinstance(x, torch.Tensor)), None)
    if tensor is None or not tensor.is_floating_point() or not isinstance(output, torch.Tensor):
        return False
    if output.dtype != torch.float32 or tensor.dim() < 1 or output.dim() < 1:
        return False
    for matrix in matrices:
        if matrix.dim() > 2 and matrix.dim() == output.dim():  # a convolution: channels stand in dim 1
            if {tensor.shape[1], output.shape[1]} <= set(matrix.shape[:2]):
                return True
        elif matrix.dim() == 2 and (
            (matrix.shape[1] == tensor.shape[-1] and matrix.shape[0] == output.shape[-1])
            or (matrix.shape[0] == tensor.shape[-1] and matrix.shape[1] == output.shape[-1])
        ):
            return True
    return False
