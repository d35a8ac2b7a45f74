"""What can be added to a made-up step: user code, pauses, checkpoints, evaluation, communication, deep records.

A part says where in the step it acts, on which ranks and how often; `act` lets time pass on the thread and writes the
records that a real rank would write. Write your own part for what is not here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar

from rankscope.records.collective import CommunicationCode
from rankscope.records.host import Compile as CompileRecord
from rankscope.records.host import DeviceWait
from rankscope.records.host import GcPause as GcPauseRecord
from rankscope.records.loading import BatchWait
from rankscope.records.training import Call, Forward, Module, Span, Subnormals
from rankscope.testing import places
from rankscope.testing.knobs import Knob, value
from rankscope.testing.simulation import ASLEEP, HOLDING, MS, NATIVE, PYTHON, Program, Thread

POINTS = (
    "start", "before-data", "before-forward", "in-forward", "after-forward", "in-backward", "after-backward",
    "in-optimizer", "after-step",
)  # fmt: skip
"""Where parts act. `start`: once, before the first step; `after-step` belongs to the next step, as in real runs."""


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """Something that happens in a made-up step."""

    point: ClassVar[str] = "after-step"
    at: str = ""
    """One of POINTS; empty: where this part usually is."""
    ranks: Collection[int] | None = None
    """None: all."""
    every: int = 1
    offset: int = 0
    """Acts at steps `offset`, `offset + every`, ..."""
    when: Callable[[int, int], bool] | None = None
    """`f(rank, step)` in place of `every`."""

    @property
    def where(self) -> str:
        """The point at which it acts. ValueError for one that does not exist."""
        place = self.at or self.point
        if place not in POINTS:
            raise ValueError(f"a part cannot be at {place!r}: use one of {', '.join(POINTS)}")
        return place

    def acts(self, rank: int, step: int) -> bool:
        """Whether it happens on a rank at a step."""
        if self.ranks is not None and rank not in self.ranks:
            return False
        if self.when is not None:
            return self.when(rank, step)
        return step >= self.offset and (step - self.offset) % self.every == 0

    @abstractmethod
    def act(self, thread: Thread) -> Program:
        """Let it happen. A part without communication yields nothing."""


@dataclass(frozen=True, kw_only=True)
class Code(Part):
    """A function of the user's that the loop calls (or torch, at `in-forward` and `in-backward`)."""

    ms: Knob = 5.0
    place: str = f"{places.TRAIN}:72:update_metrics"
    state: str = PYTHON
    line: int = places.END_LINE
    through: places.Frames = ()
    """Frames between the loop and the place, outermost first."""
    below: places.Frames = ()
    """Frames that the place calls."""

    def act(self, thread: Thread) -> Program:
        line = thread.line if self.where in ("in-forward", "in-backward", "in-optimizer") else self.line
        with thread.inside(*self.through, self.place, *self.below, line=line):
            thread.spend(value(self.ms, thread.rank, thread.step) * MS, state=self.state)
        return
        yield


@dataclass(frozen=True, kw_only=True)
class GcPause(Part):
    """A garbage collection."""

    point: ClassVar[str] = "in-forward"
    ms: Knob = 100.0
    generation: int = 2

    def act(self, thread: Thread) -> Program:
        begin = thread.now
        thread.spend(value(self.ms, thread.rank, thread.step) * MS, state=HOLDING, cpu=1.0)
        thread.writer.put(GcPauseRecord, begin, thread.now, thread.step, generation=self.generation, collected=1000)
        return
        yield


@dataclass(frozen=True, kw_only=True)
class Compile(Part):
    """A compilation by torch.compile."""

    point: ClassVar[str] = "in-forward"
    ms: Knob = 300.0
    place: str = f"{places.MODEL}:20:forward"
    reason: str = "L['x'].size()[1] == 128"
    """Empty for a first compilation."""
    limit: int = 0

    def act(self, thread: Thread) -> Program:
        begin = thread.now
        thread.spend(value(self.ms, thread.rank, thread.step) * MS, *places.DYNAMO, state=PYTHON)
        thread.writer.put(
            CompileRecord, begin, thread.now, thread.step, name=self.place, reason=self.reason, limit=self.limit
        )
        return
        yield


@dataclass(frozen=True, kw_only=True)
class Save(Part):
    """A checkpoint: `torch.save` inside a function that also flushes it to disk."""

    ms: Knob = 300.0
    flush_ms: Knob = 0.0
    place: str = f"{places.TRAIN}:61:save_checkpoint"
    line: int = 48
    barrier_ms: float | None = None
    """Ranks that call it meet in a barrier afterwards; give the part all ranks and set `savers`."""
    savers: Collection[int] | None = None
    """Of `ranks`, those that write."""

    def act(self, thread: Thread) -> Program:
        with thread.inside(self.place, line=self.line):
            if self.savers is None or thread.rank in self.savers:
                begin = thread.now
                with thread.inside(*places.SAVE, phase="checkpoint"):
                    thread.spend(value(self.ms, thread.rank, thread.step) * MS, state=NATIVE)
                thread.writer.put(
                    Span, begin, thread.now, thread.step, name="checkpoint", site=self.place, detail="torch.save",
                    bytes=1 << 28,
                )  # fmt: skip
                thread.spend(value(self.flush_ms, thread.rank, thread.step) * MS, state=ASLEEP)
        if self.barrier_ms is not None:
            with thread.inside(line=self.line + 1, phase="communication"):
                site = places.site(self.line + 1)
                yield from thread.blocking_call("barrier", self.barrier_ms * MS, site=site)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Part):
    """Forward passes in eval mode without gradients, in a function of the loop's."""

    batches: int = 20
    forward_ms: Knob = 8.0
    data_ms: Knob = 0.5
    metric_ms: Knob = 0.0
    """User code after them, in the same function."""
    place: str = f"{places.TRAIN}:66:validate"
    line: int = 50
    model: str = "Net"

    def act(self, thread: Thread) -> Program:
        rank, step, writer = thread.rank, thread.step, thread.writer
        with thread.inside(self.place, line=self.line):
            for batch in range(self.batches):
                begin = thread.now
                with thread.inside(*places.NEXT, phase="data"):
                    thread.spend(value(self.data_ms, rank, step) * MS)
                writer.put(BatchWait, begin, thread.now, step, name="Held", ordinal=batch, loader=2)
                begin = thread.now
                with thread.inside(*places.FORWARD, phase="forward"):
                    thread.spend(value(self.forward_ms, rank, step) * MS, *places.LINEAR)
                writer.put(
                    Forward, begin, thread.now, step, name=self.model, model=self.model, shape="[32, 128]",
                    elements=4096, training=0, grad=0, trained=1,
                )  # fmt: skip
            thread.spend(value(self.metric_ms, rank, step) * MS, state=PYTHON)
        return
        yield


@dataclass(frozen=True, kw_only=True)
class Reduce(Part):
    """Blocking collectives of the user's own, one after the other."""

    point: ClassVar[str] = "after-backward"
    calls: int = 1
    bytes: int = 4
    transfer_ms: Knob = 0.2
    members: tuple[int, ...] | None = None
    group: str = "group:default"
    operation: str = "allreduce"
    place: str = f"{places.TRAIN}:77:reduce_metrics"
    line: int = places.END_LINE
    between_ms: float = 0.01
    """User code before each call, in the same function."""

    def act(self, thread: Thread) -> Program:
        with thread.inside(self.place, line=self.line):
            for _ in range(self.calls):
                thread.spend(self.between_ms * MS, state=PYTHON)
                call = thread.enter(
                    self.operation, bytes=self.bytes, members=self.members, group=self.group, site=self.place
                )
                with thread.inside(phase="communication"):
                    yield from thread.wait(
                        call, value(self.transfer_ms, thread.rank, thread.step) * MS, site=self.place
                    )


@dataclass(frozen=True, kw_only=True)
class Exchange(Part):
    """A message from one rank to another: a send that comes back at once, a receive that waits."""

    point: ClassVar[str] = "before-forward"
    source: int = 0
    target: int = 1
    bytes: int = 1 << 16
    transfer_ms: Knob = 0.5
    line: int = 43

    def acts(self, rank: int, step: int) -> bool:
        return rank in (self.source, self.target) and super().acts(rank, step)

    def act(self, thread: Thread) -> Program:
        sends = thread.rank == self.source
        with thread.inside(line=self.line):
            call = thread.enter(
                "send" if sends else "recv", bytes=self.bytes, members=(self.source, self.target),
                group=f"group:default:{self.source}>{self.target}", site=places.site(self.line), point_to_point=True,
            )  # fmt: skip
            if not sends:
                with thread.inside(phase="communication"):
                    transfer = value(self.transfer_ms, thread.rank, thread.step) * MS
                    yield from thread.wait(call, transfer, site=places.site(self.line))


@dataclass(frozen=True, kw_only=True)
class CommunicationHook(Part):
    """A DDP communication hook of the user's: code that runs before each bucket is reduced. For `RunBuilder.hook`."""

    ms: Knob = 2.0
    place: str = f"{places.TRAIN}:84:compress_hook"
    state: str = ASLEEP
    bytes: int = 1 << 20

    def act(self, thread: Thread) -> Program:
        begin = thread.now
        with thread.inside(*places.HOOK_TIMER, self.place):
            thread.spend(value(self.ms, thread.rank, thread.step) * MS, state=self.state)
        thread.writer.put(CommunicationCode, begin, thread.now, thread.step, name=self.place, bytes=self.bytes)
        return
        yield


@dataclass(frozen=True, kw_only=True)
class DeviceReads(Part):
    """Reads of device values by the host."""

    point: ClassVar[str] = "after-backward"
    count: int = 4
    ms: Knob = 2.0
    line: int = places.END_LINE
    state: str = NATIVE
    """CUDA spins while it waits, unless told to sleep."""

    def act(self, thread: Thread) -> Program:
        for _ in range(self.count):
            begin = thread.now
            with thread.inside(line=self.line):
                thread.spend(value(self.ms, thread.rank, thread.step) * MS, state=self.state)
            thread.writer.put(
                DeviceWait, begin, thread.now, thread.step, name="Tensor.item", site=places.site(self.line)
            )
        return
        yield


@dataclass(frozen=True, kw_only=True)
class Deep(Part):
    """Deep records of one layer inside the forward: its time, and what its numbers are like."""

    point: ClassVar[str] = "in-forward"
    ms: Knob = 2.0
    path: str = "layers.3"
    class_name: str = f"Linear|{places.TORCH}/nn/modules/linear.py:120"
    numel: int = 4096
    autocast: int = 0
    full_precision: int = 0
    subnormal: float | None = None
    """Share of subnormal numbers in a sample of its weights (or outputs); None: not sampled."""
    activation: int = 0

    def act(self, thread: Thread) -> Program:
        begin = thread.now
        thread.spend(value(self.ms, thread.rank, thread.step) * MS, *places.LINEAR)
        thread.writer.put(
            Module, begin, thread.now, thread.step, name=self.path, numel=self.numel,
            full_precision=self.full_precision, autocast=self.autocast, leaf=1, class_name=self.class_name,
        )  # fmt: skip
        if self.subnormal is not None:
            thread.writer.put(
                Subnormals, thread.now, thread.now, thread.step, name=self.path,
                subnormal=round(4096 * self.subnormal), sampled=4096, activation=self.activation,
            )  # fmt: skip
        return
        yield


@dataclass(frozen=True, kw_only=True)
class Initialise(Part):
    """Weight initialisation before the first step."""

    point: ClassVar[str] = "start"
    ms: Knob = 100.0
    repeated: float = 0.0
    """Share of the time that went into tensors initialised before."""
    function: str = "kaiming_uniform_"
    place: str = f"{places.MODEL}:12:Net._init_weights"
    count: int = 40

    def act(self, thread: Thread) -> Program:
        begin = thread.now
        with thread.inside(self.place, line=places.SETUP_LINE):
            thread.spend(value(self.ms, thread.rank, 0) * MS, f"{places.TORCH}/nn/init.py:500:{self.function}")
        thread.writer.put(
            Call, begin, thread.now, 0, name=f"torch.nn.init.{self.function}", site=self.place, count=self.count,
            repeated_ns=round((thread.now - begin) * self.repeated),
        )  # fmt: skip
        return
        yield
