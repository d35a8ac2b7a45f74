"""Made-up trainings with known numerics: what healthy ranks say of their tensors, and what a fault changes in it.

    facts = Training(gradient=lambda rank, step, p: {"fingerprint": rank} if p.path == "head.weight" else {}).facts()

Each step is there with its phases; the sampled steps have their statistics, equal on all ranks. What a fault changes is
given as functions that return the fields of a record to be replaced.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Tables, make_tables
from rankscope.capture.sampling import Schedule
from rankscope.records.collective import Collective
from rankscope.records.host import Goodbye
from rankscope.records.inventory import Buffer, Group, Inventory, Model, Module, Optimizer, Parameter
from rankscope.records.numerics import (
    AFTER_BACKWARD,
    BufferStat,
    GradientStat,
    LossValue,
    Sampling,
    WeightStat,
)
from rankscope.records.payload import INVENTORY
from rankscope.records.process import Process
from rankscope.records.record import Record
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Backward, Forward, OptimizerStep, Step
from rankscope.testing.writer import Text, Writer

MS = 1_000_000
BEGIN_NS = 1_000_000_000_000
STEP_NS = 20 * MS
SITE = "/home/user/train.py:40:main"

Values = Mapping[str, float]
Change = Callable[[int, int, Parameter], Values]
"""(rank, step, parameter) -> fields that differ from a healthy training's."""

PARAMETERS = (
    Parameter("embed.weight", (100, 16), "float32", True, "Embedding", "1.0", storage=0),
    Parameter("layers.0.weight", (32, 16), "float32", True, "Linear", "1.0", storage=1),
    Parameter("layers.0.bias", (32,), "float32", True, "Linear", "1.1", storage=2),
    Parameter("norm.weight", (32,), "float32", True, "LayerNorm", "1.1", storage=3),
    Parameter("norm.bias", (32,), "float32", True, "LayerNorm", "1.1", storage=4),
    Parameter("head.weight", (10, 32), "float32", True, "Linear", "1.0", storage=5),
    Parameter("head.bias", (10,), "float32", True, "Linear", "1.1", storage=6),
)
BUFFERS = (Buffer("batch.running_mean", (32,), "float32", "BatchNorm1d"),)


def unchanged(rank: int, step: int, parameter: Parameter) -> Values:
    """A healthy training."""
    return {}


@dataclass(frozen=True)
class Training:
    """What a made-up training is like."""

    ranks: int = 2
    steps: int = 70
    wrapper: str = "DistributedDataParallel"
    """Empty: none, and no gradient is reduced."""
    parameters: tuple[Parameter, ...] = PARAMETERS
    buffers: tuple[Buffer, ...] = BUFFERS
    optimizer: str = "AdamW"
    lr: Callable[[int], float] = lambda step: 1e-3
    weight_decay: tuple[float, float] = (0.01, 0.0)
    """Of group 0 and group 1."""
    micro_batches: int = 1
    loss: Callable[[int, int], float] = lambda rank, step: 0.4 + 1.9 * math.exp(-step / 25) + 0.01 * rank
    """By rank and step."""
    gradient: Change = unchanged
    """Fields of `GradientStat` as the optimizer got them."""
    raw_gradient: Change = unchanged
    """Fields of `GradientStat` as backward left them."""
    weight: Change = unchanged
    buffer: Callable[[int, int, Buffer], Values] = lambda rank, step, buffer: {}
    inventory: Callable[[Inventory], Inventory] = lambda inventory: inventory
    extra: Callable[[Writer, int, int, int], None] = lambda writer, rank, step, begin_ns: None
    """Writes further records of a step: (writer, rank, step, when the step begins)."""

    def tables(self) -> Tables:
        writers = [Writer(self._process(rank)) for rank in range(self.ranks)]
        texts: list[Text] = []
        for rank, writer in enumerate(writers):
            schedule = Schedule(0.01)
            for step in range(self.steps):
                self._step(writer, rank, step, schedule.sampled(step))
            end = BEGIN_NS + self.steps * STEP_NS
            writer.put(Goodbye, end, end, self.steps)
            texts += writer.payloads()
            texts.append((writer.pid, INVENTORY, 0, self.inventory(self._inventory()).encode()))
        return make_tables(np.array([row for w in writers for row in w.rows], ROW_DTYPE), texts)

    def facts(self) -> Facts:
        return Facts(self.tables())

    def _process(self, rank: int) -> Process:
        return Process(
            pid=1000 + rank, rank=rank, local_rank=rank, world_size=self.ranks, host="node0",
            backend="gloo" if self.ranks > 1 else "", started_ns=BEGIN_NS, armed_ns=BEGIN_NS, torch_threads=1,
            cpus_allowed=(0, 1), argv=("train.py",),
        )  # fmt: skip

    def _inventory(self) -> Inventory:
        owners = {p.path.rpartition(".")[0]: p.owner for p in self.parameters}
        modules = tuple(
            Module(path, kind, True, sum(p.path.rpartition(".")[0] == path for p in self.parameters))
            for path, kind in {"": "Net", **owners}.items()
        )
        groups = tuple(
            Group(self.lr(0), decay, sum(p.group == f"1.{i}" for p in self.parameters), 0)
            for i, decay in enumerate(self.weight_decay)
        )
        model = Model("Net", self.wrapper, self.parameters, modules, self.buffers)
        return Inventory(0, (model,), (Optimizer(1, self.optimizer, groups),))

    def _step(self, w: Writer, rank: int, step: int, sampled: bool) -> None:
        t = BEGIN_NS + step * STEP_NS
        self.extra(w, rank, step, t)
        for micro in range(self.micro_batches):
            at = t + micro * 14 * MS // self.micro_batches
            part = 14 * MS // self.micro_batches
            w.put(Forward, at, at + part // 3, step, name="Net", elements=512, model="Net", training=1, grad=1,
                  trained=1)  # fmt: skip
            loss = self.loss(rank, step)
            w.put(LossValue, at + part // 3, at + part // 3, step, name=SITE, value=loss, micro_batch=micro)
            reduces = bool(self.wrapper) and self.ranks > 1 and micro == self.micro_batches - 1
            if reduces:
                middle = at + 2 * part // 3
                w.put(Collective, middle, middle + MS // 10, step, name="allreduce_", group="group:default",
                      sequence=step, bytes=4096, site=SITE, elements=1024, in_backward=1)  # fmt: skip
            w.put(Backward, at + part // 3, at + part, step, site=SITE, collectives=int(reduces))
        if sampled:
            self._statistics(w, rank, step, t + 15 * MS)
        w.put(OptimizerStep, t + 16 * MS, t + 19 * MS, step, name=self.optimizer, optimizer=1, lr=self.lr(step))
        w.put(Step, t, t + STEP_NS, step, micro_batches=self.micro_batches, observed=1)

    def _statistics(self, w: Writer, rank: int, step: int, t: int) -> None:
        def put(kind: type[Record], name: str, values: Values, changes: Values) -> None:
            fields: dict[str, float | str] = {"name": name, "model": "Net", **values, **changes}
            w.put(kind, t, t, step, **fields)

        held = [p for p in self.parameters if p.group and p.trainable]
        for p in held:
            size = _size(p.path, step)
            norm = size * math.sqrt(math.prod(p.shape))
            print = fingerprint("gradient", p.path, step)
            values = {"norm": norm, "rms": size, "fingerprint": print, "finite": 1}
            put(GradientStat, p.path, values, self.gradient(rank, step, p))
            raw = {**values, "norm": math.nan, "moment": AFTER_BACKWARD}
            put(GradientStat, p.path, raw, self.raw_gradient(rank, step, p))
        for p in self.parameters:
            moves = p in held
            values = {
                "rms": 0.1, "update": 2e-4 if moves else 0.0, "changed": 255 * moves, "finite": 1,
                "fingerprint": fingerprint("weight", p.path, step if moves else 0), "held": bool(p.group),
                "compared": 1,
            }  # fmt: skip
            put(WeightStat, p.path, values, self.weight(rank, step, p))
        for b in self.buffers:
            values = {"rms": 0.3, "fingerprint": fingerprint("buffer", b.path, step)}
            put(BufferStat, b.path, values, self.buffer(rank, step, b))
        w.put(Sampling, t, t + MS // 2, step, tensors=3 * len(self.parameters))


def fingerprint(*of: object) -> int:
    """A number that is another one for other things."""
    return zlib.crc32(repr(of).encode()) << 20 | 1


def _size(path: str, step: int) -> float:
    """A gradient that becomes smaller, with some noise."""
    return 0.01 * math.exp(-step / 60) * (1 + 0.2 * math.sin(7 * step + len(path)))
