"""What leaf modules and models give, on the steps that are looked at closely; of tensors on the CPU only."""

from __future__ import annotations

import math
import weakref
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import swallow
from rankscope.capture.sampling import Schedule
from rankscope.capture.tensors.tensor_samples import observable, readable
from rankscope.records.activations import ActivationStat, PredictionStat, UnitStat
from rankscope.records.numerics import Sampling
from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from torch import Tensor

    from rankscope.capture.agent import Agent

MOST_LOOKS: Final = 512
"""Modules of a step: looks at more would not fit between two visits of the recorder."""
ELEMENTS: Final = 1 << 14
"""Of an output that are read, about; each pass over them takes some µs."""
FEWEST_ROWS: Final = 32
"""Of a unit that are read, where there are so many: fewer say little of whether it is ever on."""
MOST_ELEMENTS: Final = 1 << 18
"""Of an output that are read for that, at most."""
MOST_UNITS: Final = 1 << 15
"""An output with more is read without its units."""
LASTING: Final = 2
"""Looks in a row that a unit must be dead in to be called so: another batch may wake it. In a training of short steps
there are few looks, and what has died is to be told before the end."""
BOUNDED: Final = {"Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Hardsigmoid": (0.0, 1.0), "Hardtanh": (-1.0, 1.0)}
"""Class of module -> the ends of its range."""
END: Final = 0.01
"""Part of the range at each end where a sigmoid counts as saturated: its slope there is below 4 % of the steepest."""
CHANNELS_FIRST: Final = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
                         "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm2d")  # fmt: skip
CHANNELS_LAST: Final = ("Linear", "LayerNorm", "RMSNorm", "Embedding", "Conv1D")


class Activations:
    """Looks at outputs on deep steps and, as far as the budget goes, on the steps that `agent.sampled` marks.

    Faults that begin late show only there; the sampled steps are the same ones on which parameters are read.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._looks: dict[tuple[int, bool], deque[tuple[bytes, bytes]]] = {}
        """Module and mode -> the last looks at its units: which were dead, which were off."""
        self._begin()
        self._forget()
        agent.on_forward.append(self._predictions)
        agent.in_child.append(self._forget)

    def remove(self) -> None:
        self._agent.on_forward.remove(self._predictions)
        self._agent.in_child.remove(self._forget)

    def _forget(self) -> None:
        self._schedule = Schedule(self._agent.config.budget)
        self._looked_at = (0, 0)
        self._usual_ns = 0.0
        self._looks.clear()

    def _begin(self) -> None:
        self._step = self._agent.step
        self._seen: set[tuple[int, bool]] = set()
        self._cost_ns = 0
        self._tensors = 0
        self._channels_first = False

    # -- steps -------------------------------------------------------------------------------------------------

    def wanted(self) -> bool:
        """Whether outputs are looked at in this step."""
        agent = self._agent
        if "numerics" not in agent.config.stages:
            return False
        return agent.deep or (agent.sampled and self._schedule.sampled(agent.step))

    def next_step(self) -> None:
        """A step may have ended: write what its looks took, and space them by it."""
        agent, cost = self._agent, self._cost_ns
        if agent.step == self._step:
            return
        if self._tensors:
            agent.put(monotonic_ns() - cost, cost, Sampling.code, 0, self._step, self._tensors, 0, 0)
            step, at = self._looked_at
            self._looked_at = agent.step, agent.last_step_end
            steps = agent.step - step
            if at and steps > 0:
                usual = max(1.0, (agent.last_step_end - at) / steps - (cost if steps == 1 else 0))
                self._usual_ns = min(self._usual_ns or usual, usual)
                self._schedule.account(cost, self._usual_ns)
        self._begin()

    # -- modules -----------------------------------------------------------------------------------------------

    def look(self, module: Any, path: int, model: int, output: Any) -> None:
        """At the output of a leaf module; the first of the step in this mode."""
        key = id(module), bool(module.training)
        if key in self._seen or len(self._seen) >= MOST_LOOKS:
            return
        begin = monotonic_ns()
        try:
            self._seen.add(key)
            tensor = _first(output) if observable() else None
            if tensor is not None:
                self._write(module, key, path, model, tensor)
        except Exception as error:  # noqa: BLE001
            swallow("looking at an output", error)
        self._cost_ns += monotonic_ns() - begin

    def _write(self, module: Any, key: tuple[int, bool], path: int, model: int, tensor: Tensor) -> None:
        import torch

        agent = self._agent
        kind = type(module).__name__
        if kind in CHANNELS_FIRST:
            self._channels_first = True
        elif kind in CHANNELS_LAST:
            self._channels_first = False
        grad = torch.is_grad_enabled()
        with torch.no_grad():
            rows = _rows(tensor.detach(), self._channels_first and tensor.dim() > 2)
            rms, mean, least, most, zeros, finite = _numbers(rows)
            ends = BOUNDED.get(kind)
            saturated = 0.0
            if ends is not None:
                near = END * (ends[1] - ends[0])
                saturated = float(((rows < ends[0] + near) | (rows > ends[1] - near)).sum()) / rows.numel()
            flags = (
                model | round(zeros * 255) << 16 | round(saturated * 255) << 24 | finite << 32 | key[1] << 33
                | grad << 34 | (ends is not None) << 35 | agent.name(kind) << 40
            )  # fmt: skip
            now = monotonic_ns()
            agent.put(now, 0, ActivationStat.code, path, agent.step, two_floats(rms, mean), two_floats(least, most),
                      flags)  # fmt: skip
            self._tensors += 1
            if rows.shape[1] <= MOST_UNITS and rows.shape[0] > 1:
                self._units(module, key, path, model, rows)

    def _units(self, module: Any, key: tuple[int, bool], path: int, model: int, rows: Tensor) -> None:
        agent = self._agent
        highest = rows.amax(0)
        off = highest <= 0
        dead = off & (rows.amin(0) == 0)
        masks = dead.numpy().tobytes(), off.numpy().tobytes()
        known = self._looks.get(key)
        if known is None or (known and len(known[0][0]) != len(masks[0])):
            known = self._looks[key] = deque(maxlen=LASTING)
            weakref.finalize(module, self._looks.pop, key, None).atexit = False
        known.append(masks)
        units = len(masks[0])
        lasting = [_in_all(units, [look[i] for look in known]) for i in (0, 1)]
        shares = [round(65535 * n / units) for n in lasting]
        flags = model | shares[0] << 16 | shares[1] << 32 | len(known) << 48 | key[1] << 50
        counts = masks[0].count(1) | masks[1].count(1) << 32
        agent.put(monotonic_ns(), 0, UnitStat.code, path, agent.step, units | rows.shape[0] << 32, counts, flags)

    # -- models ------------------------------------------------------------------------------------------------

    def _predictions(self, module: Any, model: int, args: Any, kwargs: Any, output: Any) -> None:
        """What a model gave to its caller, the first of the step in this mode."""
        import torch

        key = -id(module), bool(module.training)
        if key in self._seen or not model or not self.wanted():
            return
        begin = monotonic_ns()
        self._seen.add(key)
        tensor = _first(output) if observable() else None
        if tensor is not None and tensor.dim():
            grad = torch.is_grad_enabled()
            with torch.no_grad():
                self._write_predictions(model, key[1], grad, _rows(tensor.detach(), False))
        self._cost_ns += monotonic_ns() - begin

    def _write_predictions(self, model: int, training: bool, grad: bool, rows: Tensor) -> None:
        agent = self._agent
        _, _, least, most, _, finite = _numbers(rows)
        units = rows.shape[1]
        entropy = math.nan
        if finite and units > 1:
            logs = rows.log_softmax(1)
            entropy = float(-(logs.exp() * logs).sum(1).mean()) / math.log(units)
        size = float(rows.square().mean().sqrt())
        spread = float((rows - rows.mean(0)).square().mean().sqrt()) / size if finite and size else 0.0
        flags = units & 0x7FFFFFFF | min(rows.shape[0], 65535) << 31 | training << 48 | grad << 49 | finite << 50
        agent.put(monotonic_ns(), 0, PredictionStat.code, model, agent.step, two_floats(least, most),
                  two_floats(entropy, spread), flags)  # fmt: skip
        self._tensors += 1


def _first(output: Any) -> Tensor | None:
    """The tensor that an output consists of, or begins with; None where it cannot be read without waiting."""
    if type(output) in (tuple, list) and output:
        output = output[0]
    elif isinstance(output, dict) and output:
        output = output["logits"] if "logits" in output else next(iter(output.values()))
    tensor = readable(output)
    return tensor if tensor is not None and tensor.device.type == "cpu" else None


def _rows(tensor: Tensor, channels_first: bool) -> Tensor:
    """[rows, units] in single precision: a copy of some rows at even distances, of an output laid out in any way."""
    import torch

    if tensor.dim() == 0:
        tensor = tensor.reshape(1, 1)
    elif tensor.dim() == 1:
        tensor = tensor.unsqueeze(1)
    if channels_first:
        tensor = tensor.movedim(1, -1)
    units = tensor.shape[-1]
    wanted = max(1, ELEMENTS // units, min(FEWEST_ROWS, MOST_ELEMENTS // units))
    # Every dimension of the rows is thinned out: a look along one of them would see a single sample, or one corner.
    sizes = list(tensor.shape[:-1])
    kept = list(sizes)
    while math.prod(kept) > wanted:
        largest = max(range(len(kept)), key=kept.__getitem__)
        kept[largest] = max(1, min(kept[largest] - 1, -(-kept[largest] * wanted // math.prod(kept))))
    index = tuple(slice(None, None, -(-size // keep)) for size, keep in zip(sizes, kept, strict=True))
    return tensor[index].to(torch.float32, copy=True).reshape(-1, units)


def _numbers(rows: Tensor) -> tuple[float, float, float, float, float, bool]:
    """(root mean square, mean, least, most, share of zeros, all finite); sizes of the finite elements alone."""
    import torch

    least, most = (float(x) for x in torch.aminmax(rows))
    finite = math.isfinite(least) and math.isfinite(most)
    zeros = 1 - int(rows.count_nonzero()) / rows.numel()
    kept = rows if finite else rows[rows.isfinite()]
    count = max(1, kept.numel())
    rms = float(torch.linalg.vector_norm(kept, dtype=torch.float64)) / math.sqrt(count)
    mean = float(kept.sum(dtype=torch.float64)) / count
    return rms, mean, least, most, zeros, finite


def _in_all(units: int, masks: list[bytes]) -> int:
    """In how many places all masks (a byte a unit, 0 or 1) have a 1."""
    together = int.from_bytes(masks[0], "little")
    for mask in masks[1:]:
        together &= int.from_bytes(mask, "little")
    return together.to_bytes(units, "little").count(1)
