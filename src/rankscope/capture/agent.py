"""The state of observation in one process: its ring, its names, its step, and the sources that feed it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from rankscope.base import guard
from rankscope.base.clock import now_ns
from rankscope.capture import callsite
from rankscope.capture.config import Config, sample_rate
from rankscope.capture.describe import describe_process
from rankscope.capture.governor import Governor
from rankscope.capture.inventory import Root
from rankscope.capture.optimizers import Optimizers
from rankscope.capture.ring import Put, Ring
from rankscope.capture.self_cost import KERNEL_NS, WRAPPER_NS, slowness, whole_cost_ns
from rankscope.capture.source import Source
from rankscope.capture.unused import unused_parameters
from rankscope.records import payload, ring_layout
from rankscope.records.host import CaughtException, Goodbye
from rankscope.records.training import Step

TIMED_EVERY, TIMED = 16, 8
"""Of so many steps one, this one, is timed. It is never one that is recorded module by module for its number."""
NEVER = 1 << 62
UNUSUAL = 3
"""Backwards of one step, at least, after which the next is looked at: something may keep the optimizer back."""
MOST_CAUGHT = 200
"""Exceptions of a process that are written, whatever they say; then only such as have not been seen before: a program
that logs one each step says nothing new by it."""
MOST_TEXTS = 2000
"""Different exceptions of a process: each takes room among the names."""
MAX_NAMES = 32_767  # some records have 15 bits for an id; what comes later is written under id 0, "(other)"


class Agent:
    """One a process. Sources call `put`, `name` and `site`; everything else is theirs to leave alone.

    Until the process trains, serves or joins a process group there is no ring: the first `put` opens it.
    """

    def __init__(self, config: Config) -> None:  # noqa: PLR0915  one line an attribute: slots of plain data
        self.config = config
        self.put: Put = self._first_put
        self.pending: Put = _nothing
        """Into the slot for the operation that the training thread is in."""
        self.step = 0
        self.depth = 0
        """Modules that the training thread is inside of; 0 in user code."""
        self.phase = 0
        """Name id of the innermost phase, for the stack sampler."""
        self.thread = threading.get_ident()
        """The thread that trains: the one whose records come in program order."""
        self.role = "rank"
        self.worker = -1
        self.in_backward = False
        self.in_next = False
        self.waiting = False
        self.micro_batches = 0
        self.unusual = UNUSUAL
        """So many backwards in one step are worth a closer look: a step usually has half of them."""
        self.optimizer_steps = 0
        self.reduces_by_hook = False
        """DDP's gradients go through a communication hook: what is reduced may be anything."""
        self.backward_collectives = 0
        self.backward_last_enter = 0
        self.backward_site = 0
        self.explicit_steps = False
        """The user marks steps; optimizer steps end none."""
        self.last_step_end = 0
        self.own_ns = 0
        """Time that sources took for themselves since the last step, as they can see it, where `timing`."""
        self.hidden_ns = 0
        """What they cannot see of it, from warm caches."""
        self.hooks = 0
        """Calls of sources that are in these sums."""
        self._slow = 1.0
        self.wrapper_ns, self.kernel_ns = WRAPPER_NS, KERNEL_NS
        """`WRAPPER_NS` and `KERNEL_NS` on this machine."""
        self.timing = True
        """Whether hooks say what they take in this step: to ask costs about as much as a hook."""
        self.deep = False
        """Whether this step is recorded module by module."""
        self.sites = config.level != "light"
        """Whether collectives are written with call-site and shapes."""
        self.sample_hz = sample_rate(config)
        """Stack samples a second; 0: none."""
        self.governor = Governor(self)
        self.ended = False
        self.sources: list[Source] = []
        self.sources_off: dict[str, str] = {}
        self.on_open: list[Callable[[], None]] = []
        """Called once the ring is there (threads may start now)."""
        self.on_step: list[Callable[[], None]] = []
        """Called on the training thread before step `wake` begins."""
        self.wake = 0
        """The next step that a source prepares. Whoever is called sets it to his own next one if that comes sooner."""
        self.before_backward: list[Callable[[Any, int], None]] = []
        """Called on the training thread with what backward is called on (a tensor, or several in a tuple), and the name
        id of its call-site."""
        self.on_lost_loss: list[Callable[[Any, int], None]] = []
        """Called before a backward on a number that is not finite, with its tensor and the call-site's name id."""
        self.on_lost_gradients: list[Callable[[Any, int], None]] = []
        """Called after a backward of a sampled step that left gradients that are not finite, with the node of the graph
        that it began at and the call-site's name id."""
        self.after_backward: list[Callable[[], None]] = []
        self.before_close_backward: list[Callable[[Any, int], None]] = []
        """As `before_backward`, only where one looks closely: in sampled steps, and where a step has many more
        backwards than the others."""
        self.after_close_backward: list[Callable[[], None]] = []
        self.before_reduction: list[Callable[[Any], None]] = []
        """Called in backwards of sampled steps with the arguments of each `allreduce_` before it begins."""
        self.before_optimizer: list[Callable[[Any], None]] = []
        """Called on the training thread with each optimizer that is about to step."""
        self.after_optimizer: list[Callable[[Any], None]] = []
        """Called when it has, before the step of the run ends."""
        self.before_sampled_optimizer: list[Callable[[Any], None]] = []
        self.after_sampled_optimizer: list[Callable[[Any], None]] = []
        """The same two in sampled steps only."""
        self.on_batch: list[Callable[[Any, Any, int, int, int], None]] = []
        """Called on the training thread with each batch that a DataLoader gave: (iterator, batch, name id, ordinal and
        flags as in `BatchWait`)."""
        self.on_forward: list[Callable[[Any, int, Any, Any, Any], None]] = []
        """Called after a root forward of a sampled step: (module, name id of its model, args, kwargs, output)."""
        self.on_turn: list[Callable[[Any, int, Any, Any, Any], None]] = []
        """The same in other steps, where a model is called in another mode (training, gradients) than before."""
        self.on_leaf: list[Callable[[Any, int, int, Any], None]] = []
        """Called on steps whose outputs are looked at after a module that calls no other one: (module, name ids of its
        path and of its model, args)."""
        self.before_evaluation: list[Callable[[Any, int, Any, Any], None]] = []
        """Called before each root forward without gradients: (module, name id of its model, args, kwargs)."""
        self.after_evaluation: list[Callable[[Any, int], None]] = []
        self.sampled = False
        """Whether tensors are looked at in this step."""
        self.roots: list[Root] = []
        """The models that the program has called, in that order."""
        self.optimizers = Optimizers()
        self.on_config: list[Callable[[], None]] = []
        """Called when the configuration has changed."""
        self.ring: Ring | None = None
        self.started_ns = now_ns()
        self.armed_ns = 0
        self.torch_module: object = None
        self.backend = ""
        self.rank_hint = (-1, -1)
        """Rank and world size that the program has given to `init_process_group`; -1: it has not."""
        self.parameters = 0
        self._names: dict[str, int] = {}
        self._sites: dict[tuple[int, int], int] = {}
        self._codes: dict[int, CodeType] = {}
        """What the ids in `_sites` belong to, kept so that they are not given to others."""
        self._caught = 0
        self._caught_texts: set[int] = set()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._excepthooks: tuple[Any, Any] = (None, None)
        self.before_fork: list[Callable[[], None]] = []
        self.after_fork: list[Callable[[], None]] = []
        self.in_child: list[Callable[[], None]] = []
        self.at_end: list[Callable[[], None]] = []
        """Called when the process ends: no thread of ours may run while Python takes itself down."""
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child)

    # -- names -------------------------------------------------------------------------------------------------

    def name(self, text: str) -> int:
        """The id of a name in this process; written to the ring the first time."""
        known = self._names.get(text)
        if known is None:
            with self._lock:
                known = self._names.get(text)
                if known is None:
                    if len(self._names) >= MAX_NAMES:
                        return 0
                    known = len(self._names) + 1
                    if self.ring is not None:
                        self.ring.payload(payload.NAME, known, text)
                    self._names[text] = known
        return known

    def site(self, depth: int = 1) -> int:
        """Name id of the user's line from which the caller was reached; 0 where there is none."""
        return self.frame_site(callsite.user_frame(depth + 1))

    def frame_site(self, frame: FrameType | None) -> int:
        if frame is None:
            return 0
        code = frame.f_code
        key = (id(code), frame.f_lasti)  # a code object's hash takes as long as it is large
        known = self._sites.get(key)
        if known is None:
            if len(self._sites) >= MAX_NAMES:
                self._sites.clear()  # a program that makes its functions anew each step; they must not be kept alive
                self._codes.clear()
            known = self._sites[key] = self.name(callsite.describe(code, frame.f_lineno or 0))
            self._codes[id(code)] = code
        return known

    def raising_site(self, trace: TracebackType | None) -> int:
        """Name id of the innermost line of the user's in a traceback; 0 where there is none."""
        found = None
        while trace is not None:
            if not callsite.is_library(trace.tb_frame.f_code):
                found = trace
            trace = trace.tb_next
        return self.name(callsite.describe(found.tb_frame.f_code, found.tb_lineno)) if found is not None else 0

    # -- ring --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the ring: this process trains, serves or joins a process group."""
        if self.ring is not None or self.ended:
            return
        self.thread = threading.get_ident()
        self._slow = slowness()
        self.wrapper_ns, self.kernel_ns = int(WRAPPER_NS * self._slow), int(KERNEL_NS * self._slow)
        ring = self._make_ring()
        if ring is None:
            self.put = _nothing
            self.ended = True
            return
        for text, id in self._names.items():
            ring.payload(payload.NAME, id, text)
        self.ring = ring
        self.put = ring.lane()
        self.pending = ring.pending
        self.describe()
        for call in self.on_open:
            with guard.guard("opening a source"):
                call()

    def adopt_thread(self) -> bool:
        """Whether the calling thread is the one that trains; before the first step, one that steps becomes it."""
        me = threading.get_ident()
        if me == self.thread:
            return True
        if self.step or self.ended or self.role != "rank":
            return False
        self.thread = me
        if self.ring is None:
            self.open()
        if self.ring is None:
            return False
        self.put = self.ring.lane()
        return True

    def configure(self, config: Config) -> None:
        """Change what is observed from now on; a stage that is no longer wanted is removed."""
        self.config = config
        self.sites = config.level != "light"
        self.sample_hz = sample_rate(config)
        self.governor = Governor(self)
        # Backwards: what was replaced twice is put back in the order of its layers.
        for source in [s for s in reversed(self.sources) if s.stage and s.stage not in config.stages]:
            with guard.guard(f"removing {source.name}"):
                source.remove()
            self.sources.remove(source)
            self.sources_off[source.name] = f"stage {source.stage} is not among the configured ones"
        for call in self.on_config:
            with guard.guard("configuring a source"):
                call()
        self.describe()

    def describe(self) -> None:
        """Write what this process is; called again when rank, group or threads have become known."""
        if self.ring is not None:
            self.ring.payload(payload.PROCESS, 0, describe_process(self).encode())

    def thread_put(self) -> Put:
        """A put for the calling thread, for records that do not come from the training thread."""
        return self.ring.lane() if self.ring is not None else _nothing

    def _first_put(self, *values: int) -> None:
        try:
            self.open()
        except Exception as error:  # noqa: BLE001  the wall between us and the user's program
            self.put = _nothing
            self.ended = True
            guard.swallow("opening the ring", error)
        self.put(*values)

    def _make_ring(self) -> Ring | None:
        sizes = ring_layout.RANK_SIZES if self.role == "rank" else ring_layout.WORKER_SIZES
        # A process that was forked twice from the same parent may reuse a pid within a long run.
        file = f"{os.getpid()}-{now_ns():x}.ring"
        for folder in self.config.ring_folders:
            try:
                return Ring(Path(folder) / file, sizes)
            except OSError:
                continue
        return None

    def end_step(self, end_ns: int, *, inference: bool = False) -> None:
        """A step of the run is finished: write it, and let sources prepare the next one."""
        begin = self.last_step_end or end_ns
        flags = 1 | self.explicit_steps << 1 | inference << 2
        own = 0
        if self.timing:
            own = whole_cost_ns(self.own_ns, self.hidden_ns, self.hooks, self._slow)
            self.own_ns = self.hidden_ns = self.hooks = 0
            self.governor.account(end_ns, end_ns - begin, own)
        self.put(begin, end_ns - begin, Step.code, 0, self.step, self.micro_batches, flags, own)
        self.last_step_end = end_ns
        self.micro_batches = 0
        self.step += 1
        self.timing = self.step % TIMED_EVERY == TIMED
        if self.step == 1:
            self.describe()
        if self.step >= self.wake:
            self.wake = NEVER
            for call in self.on_step:
                with guard.guard("preparing a step"):
                    call()

    # -- life --------------------------------------------------------------------------------------------------

    def install(self, source: Source) -> None:
        """Install one source; a source that fails is off, and the report says so."""
        try:
            source.install(self)
        except Exception as error:  # noqa: BLE001
            self.sources_off[source.name] = f"{type(error).__name__}: {error}"[:200]
            guard.swallow(f"installing {source.name}", error)
        else:
            self.sources.append(source)

    def remove(self) -> None:
        """Undo every source and close the ring; the process goes on unobserved."""
        for source in reversed(self.sources):
            with guard.guard(f"removing {source.name}"):
                source.remove()
        self._goodbye()
        self.sources.clear()
        atexit.unregister(self._goodbye)
        ours, previous = self._excepthooks
        if ours is not None and sys.excepthook is ours:
            sys.excepthook = previous
        self.put = self.pending = _nothing
        self.ended = True

    def watch_end(self) -> None:
        """Say goodbye at exit, and remember the exception that ends the process."""
        atexit.register(self._goodbye)
        previous = sys.excepthook

        def excepthook(kind: type[BaseException], error: BaseException, trace: object) -> None:
            with guard.guard("noting the last exception"):
                self._open_at_death(kind)
                self.raised = (*self._about(error), now_ns())
            previous(kind, error, trace)  # type: ignore[arg-type]

        sys.excepthook = excepthook
        self._excepthooks = (excepthook, previous)

    def _open_at_death(self, kind: type[BaseException]) -> None:
        """A process that dies before it trains or joins a group has something to say all the same."""
        if self.ring is None and issubclass(kind, Exception):
            if "torch.distributed.run" in sys.modules:
                self.role = "launcher"
            self.open()

    def caught(self, error: BaseException) -> None:
        """Write an exception that the program has caught, with the line that raised it."""
        if self.ring is None or self.ended or not isinstance(error, Exception):
            return
        text, place = self._about(error)
        new = text not in self._caught_texts
        if self._caught >= MOST_CAUGHT and (not new or len(self._caught_texts) >= MOST_TEXTS):
            return
        self._caught += 1
        self._caught_texts.add(text)
        self.thread_put()(now_ns(), 0, CaughtException.code, text, self.step, place, 0, 0)

    def _about(self, error: BaseException) -> tuple[int, int]:
        """Name ids of `Type: message` and of the line that raised it; of parameters that DDP only counts, their names
        and the forward that did not use them."""
        kind = type(error).__name__
        unused = unused_parameters(str(error), error.__traceback__)
        if unused is None:
            return self.name(f"{kind}: {error}"[:500]), self.raising_site(error.__traceback__)
        code = unused.forward
        place = self.name(callsite.describe(code, code.co_firstlineno)) if code is not None else 0
        text = f"{kind}: no gradient for {unused.names}: {error}"[:500]
        return self.name(text), place or self.raising_site(error.__traceback__)

    raised = (0, 0, 0)
    """Of the exception that ended the program: name ids of its text and place, and when."""

    def _goodbye(self) -> None:
        if self.ring is None or self.ended or os.getpid() != self._pid:
            return
        with guard.guard("saying goodbye"):
            if guard.Errors.last:
                self.name(f"swallowed: {guard.Errors.last}")
            put = self.thread_put()
            text, place, raised_ns = self.raised
            put(now_ns(), 0, Goodbye.code, place, self.step, text, guard.Errors.count, raised_ns)
            self.ring.goodbye()
            for call in self.at_end:
                call()

    def _before_fork(self) -> None:
        for call in self.before_fork:
            with guard.guard("preparing for fork"):
                call()

    def _after_fork(self) -> None:
        for call in self.after_fork:
            with guard.guard("going on after fork"):
                call()

    def _in_child(self) -> None:
        """A forked child has its own story: it must never write into its parent's ring."""
        self.ring = None
        self.put = self._first_put if not self.ended else _nothing
        self.pending = _nothing
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.thread = threading.get_ident()
        self.depth = 0
        self.phase = 0
        self.step = self.wake = 0
        self.timing = True
        self.in_backward = self.in_next = self.waiting = False
        self.last_step_end = self.micro_batches = self.optimizer_steps = 0
        self.unusual = UNUSUAL
        self.own_ns = self.hidden_ns = self.hooks = 0
        self.started_ns = now_ns()
        self.raised = (0, 0, 0)
        self._caught = 0
        self._caught_texts = set()
        self.roots.clear()
        self.optimizers.forget()
        self.governor = Governor(self)
        for call in self.in_child:
            with guard.guard("starting anew after fork"):
                call()


def _nothing(*_: int) -> None:
    """The put of a process that is not observed."""
