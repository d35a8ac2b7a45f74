"""Made-up runs with a known fault, for our tests and for plugin authors'.

    run = RunBuilder(ranks=2, steps=100, parts=(Code(ms=20, ranks=(1,)),)).build()
    findings = list(MyDetector().examine(run.facts))
    assert findings[0].cost.recoverable_share == approx(recoverable_share(run, RunBuilder(ranks=2, steps=100).build()))

The ranks are simulated (`testing.simulation`): collectives make them wait for one another, so what a fault costs is
known exactly from the same run without it. The records are those that real ranks write (`run.rows`, `run.payloads`).
`testing.known_runs` holds one run for each cause and a good many healthy ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import Rows, Tables, make_tables
from rankscope.records.host import Goodbye
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Backward, Forward, OptimizerStep, Step
from rankscope.testing import places
from rankscope.testing.host import IDLE_WORKER, Host, write_counters, write_samples
from rankscope.testing.knobs import Knob, value
from rankscope.testing.loader import Feed, Loader
from rankscope.testing.parts import Part
from rankscope.testing.simulation import MS, NATIVE, Program, Thread, World
from rankscope.testing.writer import Text, Writer

BEGIN_NS = 1_000_000_000_000
"""When the processes of every made-up run start, on their monotonic clock."""
RECORDER_PID = 900
FIRST_RANK_PID = 1000
FIRST_WORKER_PID = 5000


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a step: its forward, its backward and its optimizer (None: it has none)."""

    name: str = "Net"
    forward_ms: Knob = 15.0
    backward_ms: Knob | None = 30.0
    optimizer_ms: Knob | None = 4.0
    elements: Knob = 4096
    """Elements of its inputs."""
    buckets: int = 2
    """Gradient reductions in its backward."""
    bucket_bytes: int = 1 << 20


@dataclass(frozen=True)
class RunBuilder:
    """What a made-up run is like. Times are in ms; a `Knob` may be a number, a dictionary by rank, or f(rank, step)."""

    ranks: int = 2
    steps: int = 100
    forward_ms: Knob = 15.0
    backward_ms: Knob = 30.0
    optimizer_ms: Knob = 4.0
    transfer_ms: Knob = 0.8
    """From the last rank's entry into the last gradient reduction to its end."""
    buckets: int = 2
    bucket_bytes: int = 1 << 20
    elements: Knob = 4096
    micro_batches: int = 1
    no_sync: bool = True
    """Micro-batches but the last one skip the reduction."""
    models: tuple[Model, ...] = ()
    """In place of the one model that the numbers above describe: each does its forward, backward and optimizer."""
    sharded_layers: int = 0
    """Parameters are gathered so many times in forward and backward and gradients scattered, as FSDP2 does."""
    inference: bool = False
    """Forwards without gradients only; no steps."""
    loader: Loader | None = field(default_factory=Loader)
    """None: the loop has no DataLoader."""
    parts: tuple[Part, ...] = ()
    hook: Part | None = None
    """A DDP communication hook."""
    gap_ms: float = 0.03
    """The loop's own Python between two phases."""
    start_ms: Knob = 1000.0
    """Imports, from the start of a process to its first line of training code."""
    torch_threads: Knob = 1
    cuda_devices: int = 0
    host: Host | None = field(default_factory=Host)
    """None: nobody read the operating system's counters."""
    hosts: Callable[[int], str] = lambda rank: "node0"
    sample_hz: float = 20.0
    """0: no stack samples."""
    thread_states: bool = True
    """Stack samples know from the kernel whether the thread ran or slept."""
    compute_cpu: Knob = 1.0
    """CPU time over wall time of the training thread while it computes; less where it has to wait for a CPU."""
    noise: float = 0.0
    """Standard deviation of each phase's duration, as a share of it."""
    seed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    """Real files in place of made-up ones (`places.TRAIN` ...): analysis reads the source lines of what it finds."""
    own_us: float = 60.0
    """What rankscope itself takes of each step (not added to its time)."""

    def build(self) -> MadeUpRun:
        """Simulate it."""
        return _Simulation(self).run()


@dataclass(frozen=True)
class MadeUpRun:
    """A simulated run: its records, and what is known about it without looking at them."""

    rows: Rows
    """As `records.slot.ROW_FIELDS`, of all processes."""
    payloads: list[Text]
    ends: NDArray[np.int64]
    """[rank, step]: when each rank ended each step, in ns."""

    @cached_property
    def tables(self) -> Tables:
        return make_tables(self.rows, list(self.payloads))

    @cached_property
    def facts(self) -> Facts:
        return Facts(self.tables)

    def span_ns(self, warm_up: int) -> int:
        """From the end of the last warm-up step to the end of the last step, over all ranks."""
        latest = self.ends.max(axis=0)
        return int(latest[-1] - latest[warm_up - 1])


def recoverable_share(faulty: MadeUpRun, repaired: MadeUpRun) -> float:
    """What the repair really gains, over the window that the analysis looks at."""
    warm_up = faulty.facts.warm_up
    return 1 - repaired.span_ns(warm_up) / faulty.span_ns(warm_up)


class _Simulation:
    def __init__(self, spec: RunBuilder) -> None:
        self.spec = spec
        self.world = World(spec.ranks)
        self.models = spec.models or (
            Model("Net", spec.forward_ms, spec.backward_ms, spec.optimizer_ms, spec.elements, spec.buckets,
                  spec.bucket_bytes),
        )  # fmt: skip
        self.parts: dict[str, list[Part]] = {}
        for part in spec.parts:
            self.parts.setdefault(part.where, []).append(part)
        cpus = tuple(range(spec.host.cpus if spec.host else 8))
        self.cpus = cpus
        self.threads = [
            Thread(
                r, self.world, Writer(self._process(r), files=spec.files), BEGIN_NS, noise=spec.noise, seed=spec.seed
            )
            for r in range(spec.ranks)
        ]
        pids = count(FIRST_WORKER_PID)
        self.feeds = [Feed(spec.loader or Loader(), self._workers_of(t, pids), spec.files) for t in self.threads]
        self.ends: list[list[int]] = [[] for _ in self.threads]
        self.last_end = [0] * spec.ranks
        self.micro = [0] * spec.ranks

    def _process(self, rank: int) -> Process:
        spec = self.spec
        start = value(spec.start_ms, rank, 0, 1000.0)
        return Process(
            pid=FIRST_RANK_PID + rank, role="rank", rank=rank, local_rank=rank, world_size=spec.ranks,
            host=spec.hosts(rank), backend="gloo" if spec.ranks > 1 else "", started_ns=BEGIN_NS,
            armed_ns=BEGIN_NS + round(start * MS * 0.9), torch_threads=int(value(spec.torch_threads, rank, 0, 1)),
            torch_version="2.9.0", python_version="3.11.7", cuda_devices=spec.cuda_devices, cpus_allowed=self.cpus,
            argv=("train.py",), cwd="/home/user", parameters=1_000_000,
        )  # fmt: skip

    def _workers_of(self, thread: Thread, pids: count[int]) -> Callable[[int, int, int], Process]:
        def new(worker: int, _ever: int, born: int) -> Process:
            loader = self.spec.loader
            allowed = loader.affinity if loader is not None and loader.affinity is not None else self.cpus
            return Process(
                pid=next(pids), role="loader-worker", rank=thread.rank, world_size=self.spec.ranks,
                parent=thread.writer.pid, worker=worker, host=self.spec.hosts(thread.rank), started_ns=born,
                armed_ns=born, torch_threads=1, cpus_allowed=allowed,
            )  # fmt: skip

        return new

    # -- one rank ----------------------------------------------------------------------------------------------

    def run(self) -> MadeUpRun:
        self.world.run([self._program(t) for t in self.threads])
        spec = self.spec
        end = max(t.now for t in self.threads)
        writers = [t.writer for t in self.threads]
        for thread, feed in zip(self.threads, self.feeds, strict=True):
            armed = thread.writer.process.armed_ns
            write_samples(
                thread.writer, thread.activities, armed, thread.now, hz=spec.sample_hz,
                seed=f"{spec.seed}/{thread.rank}", states=spec.thread_states,
            )  # fmt: skip
            for worker in feed.workers:
                last = max((a.end for a in worker.activities), default=0)
                write_samples(
                    worker.writer, worker.activities, worker.writer.process.started_ns, last, hz=spec.sample_hz,
                    seed=f"{spec.seed}/{worker.writer.pid}", idle=IDLE_WORKER, states=spec.thread_states,
                )  # fmt: skip
                writers.append(worker.writer)
            thread.writer.put(Goodbye, thread.now, thread.now, thread.step)
        recorder = Writer(Process(RECORDER_PID, "recorder", cpus_allowed=self.cpus))
        if spec.host is not None:
            pids = [(t.rank, t.writer.pid) for t in self.threads]
            write_counters(recorder, spec.host, pids, BEGIN_NS, end)
        writers.append(recorder)
        rows = np.array([row for writer in writers for row in writer.rows], ROW_DTYPE)
        texts = [text for writer in writers for text in writer.payloads()]
        return MadeUpRun(rows, texts, np.array(self.ends, np.int64))

    def _program(self, t: Thread) -> Program:
        spec = self.spec
        with t.inside(line=3):
            t.spend(value(spec.start_ms, t.rank, 0, 1000.0) * MS, "<frozen importlib._bootstrap>:1027:_find_and_load")
        yield from self._parts("start", t)
        if spec.ranks > 1:
            with t.inside(line=places.SETUP_LINE + 1):
                yield from t.blocking_call("broadcast", 1 * MS, site=places.site(places.SETUP_LINE + 1))
        for step in range(spec.steps):
            if spec.inference:
                yield from self._request(t, step)
            else:
                yield from self._step(t)
            yield from self._parts("after-step", t)

    def _parts(self, point: str, t: Thread) -> Program:
        for part in self.parts.get(point, ()):
            if part.acts(t.rank, t.step):
                yield from part.act(t)

    def _cpu(self, t: Thread) -> float:
        return value(self.spec.compute_cpu, t.rank, t.step, 1.0)

    def _gap(self, t: Thread, line: int) -> None:
        with t.inside(line=line):
            t.spend(self.spec.gap_ms * MS, state=NATIVE)

    def _request(self, t: Thread, step: int) -> Program:
        yield from self._parts("before-data", t)
        if self.spec.loader is not None:
            self.feeds[t.rank].next(t, grad=0)
        yield from self._parts("before-forward", t)
        for model in self.models:
            yield from self._forward(t, model, training=False)
        yield from self._parts("after-forward", t)
        self._gap(t, places.END_LINE)
        self.ends[t.rank].append(t.now)

    def _step(self, t: Thread) -> Program:
        spec = self.spec
        for micro in range(spec.micro_batches):
            yield from self._parts("before-data", t) if micro == 0 else ()
            if spec.loader is not None:
                self.feeds[t.rank].next(t)
            self._gap(t, places.FORWARD_LINE)
            yield from self._parts("before-forward", t) if micro == 0 else ()
            last = micro == spec.micro_batches - 1
            for model in self.models:
                yield from self._forward(t, model)
                yield from self._parts("after-forward", t) if micro == 0 else ()
                if model.backward_ms is not None:
                    self._gap(t, places.BACKWARD_LINE)
                    yield from self._backward(t, model, reduces=last or not spec.no_sync)
                if last and model.optimizer_ms is not None:
                    yield from self._parts("after-backward", t)
                    self._gap(t, places.OPTIMIZER_LINE)
                    yield from self._optimizer(t, model)

    def _forward(self, t: Thread, model: Model, training: bool = True) -> Program:
        begin = t.now
        half = t.noisy(value(model.forward_ms, t.rank, t.step, 15.0) * MS) / 2
        elements = int(value(model.elements, t.rank, t.step, 4096))
        with t.inside(*places.FORWARD, line=places.FORWARD_LINE, phase="forward"):
            yield from self._gathers(t)
            t.spend(half, *places.LINEAR, cpu=self._cpu(t))
            yield from self._parts("in-forward", t)
            t.spend(half, *places.LINEAR, cpu=self._cpu(t))
        t.writer.put(
            Forward, begin, t.now, t.step, name=model.name, elements=elements, model=model.name,
            shape=f"[{elements}]", training=int(training), grad=int(training), trained=int(training),
        )  # fmt: skip

    def _gathers(self, t: Thread) -> Program:
        for _ in range(self.spec.sharded_layers):
            yield from self._blocking(t, "_allgather_base", 1 << 18)

    def _blocking(self, t: Thread, name: str, size: int) -> Program:
        call = t.enter(name, bytes=size, site=f"{places.MODEL}:21:Net.forward")
        with t.inside(phase="communication"):
            yield from t.wait(call, value(self.spec.transfer_ms, t.rank, t.step, 0.8) * MS)

    def _backward(self, t: Thread, model: Model, reduces: bool) -> Program:
        spec = self.spec
        buckets = model.buckets if reduces and spec.ranks > 1 else 0
        sharded = spec.sharded_layers if spec.ranks > 1 else 0
        assert model.backward_ms is not None
        total = t.noisy(value(model.backward_ms, t.rank, t.step, 30.0) * MS)
        slices = max(2, sharded or buckets)
        begin = t.now
        t.in_backward, t.backward_calls, t.last_enter_ns = True, 0, 0
        call = None
        with t.inside(*places.BACKWARD, line=places.BACKWARD_LINE, phase="backward"):
            for part in range(slices):
                t.spend(total // slices, cpu=self._cpu(t))
                if part == 0:
                    yield from self._parts("in-backward", t)
                if part < sharded:
                    yield from self._blocking(t, "_allgather_base", 1 << 18)
                    yield from self._blocking(t, "_reduce_scatter_base", 1 << 18)
                elif part < buckets:
                    if spec.hook is not None and spec.hook.acts(t.rank, t.step):
                        yield from spec.hook.act(t)
                    call = t.enter(bytes=model.bucket_bytes, site=places.site(places.BACKWARD_LINE))
            if call is not None:
                transfer = value(spec.transfer_ms, t.rank, t.step, 0.8) * MS
                yield from t.wait(call, transfer, record=False)  # in C++: no record but the end of backward
        t.in_backward = False
        last_enter = t.last_enter_ns if call is not None else 0
        self.micro[t.rank] += 1
        t.writer.put(
            Backward, begin, t.now, t.step, site=places.site(places.BACKWARD_LINE),
            last_enter_ns=last_enter, collectives=t.backward_calls,
        )  # fmt: skip

    def _optimizer(self, t: Thread, model: Model) -> Program:
        number = 1 + [m.name for m in self.models if m.optimizer_ms is not None].index(model.name)
        begin = t.now
        with t.inside(*places.OPTIMIZER, line=places.OPTIMIZER_LINE, phase="optimizer"):
            assert model.optimizer_ms is not None
            t.spend(
                t.noisy(value(model.optimizer_ms, t.rank, t.step, 4.0) * MS),
                f"{places.TORCH}/optim/adamw.py:690:_foreach_adamw",
                cpu=self._cpu(t),
            )
            yield from self._parts("in-optimizer", t)
        t.writer.put(OptimizerStep, begin, t.now, t.step, name="AdamW", optimizer=number)
        if number == 1:  # the optimizer that stepped first ends the steps of the run
            before = self.last_end[t.rank] or t.now
            t.writer.put(
                Step,
                before,
                t.now,
                t.step,
                micro_batches=self.micro[t.rank],
                observed=1,
                own_ns=round(self.spec.own_us * 1e3),
            )
            self.last_end[t.rank], self.micro[t.rank] = t.now, 0
            self.ends[t.rank].append(t.now)
            t.step += 1
