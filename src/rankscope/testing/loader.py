"""A made-up DataLoader: fetches on the rank, or in simulated workers that make batches ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankscope.records.loading import BatchWait, Fetch, LoaderStart, WorkerStart
from rankscope.records.process import Process
from rankscope.testing import places
from rankscope.testing.knobs import Knob, value
from rankscope.testing.simulation import ASLEEP, MS, NATIVE, PYTHON, Activity, Thread
from rankscope.testing.writer import Writer

HAND_OVER_NS = 150_000
"""What `next()` costs when the batch is ready."""


@dataclass(frozen=True, slots=True)
class Loader:
    """How batches are made. `fetch_ms` is one batch, wherever it is made."""

    fetch_ms: Knob = 0.3
    """The step of its knob is the number of the batch."""
    cpu_share: float = 1.0
    """CPU time over wall time of a fetch; below one half it waits for something."""
    workers: int = 0
    epoch: int | None = None
    """Batches per iterator; None: one iterator for the whole run."""
    persistent: bool = False
    worker_start_ms: float = 60.0
    """From the start of a worker to its first fetch."""
    prefetch: int = 2
    samples: int = 32
    dataset: str = "Words"
    place: str = f"{places.DATA}:31:Words.__getitem__"
    """Where a fetch spends its time."""
    below: places.Frames = ()
    """Frames that the place calls, outermost first."""
    affinity: tuple[int, ...] | None = None
    """CPUs that workers may use; None: all."""

    @property
    def state(self) -> str:
        """What a fetch looks like to a stack sample."""
        return PYTHON if self.cpu_share >= 0.5 else ASLEEP


@dataclass(slots=True)
class WorkerThread:
    """One loader worker: its records, and what it did when."""

    writer: Writer
    free: int
    activities: list[Activity] = field(default_factory=list)
    fetches: int = 0


class Feed:
    """The batches of one rank, one after the other."""

    def __init__(
        self, loader: Loader, new_worker: Callable[[int, int, int], Process], files: Mapping[str, str]
    ) -> None:
        self.loader = loader
        self.workers: list[WorkerThread] = []
        """All workers that there ever were."""
        self._new_worker = new_worker
        self._files = files
        self._current: list[WorkerThread] = []
        self._ready: dict[int, int] = {}
        self._asked = 0
        self._given = 0
        self._total = 0
        self._open = False

    def next(self, thread: Thread, *, grad: int = 1) -> None:
        """One `next()` on the training thread; starts an iterator where there is none or the last is exhausted."""
        epoch = self.loader.epoch
        if self._open and epoch is not None and self._given >= epoch:
            with thread.inside(*places.NEXT, line=places.BATCH_LINE, phase="data"):
                self._wait(thread, thread.now, thread.now + 20_000, grad, ended=1)
            self._open = False
        if not self._open:
            self._start(thread)
        with thread.inside(*places.NEXT, line=places.BATCH_LINE, phase="data"):
            if self.loader.workers:
                self._from_workers(thread, grad)
            else:
                self._fetch_here(thread, grad)
        self._given += 1
        self._total += 1

    def _start(self, thread: Thread) -> None:
        loader = self.loader
        reused = bool(self._current) and loader.persistent
        begin = thread.now
        with thread.inside(*places.WORKER_START, line=places.LOADER_LINE, phase="data"):
            if loader.workers and not reused:
                self._current = []
                for worker in range(loader.workers):
                    thread.spend(3 * MS)
                    process = self._new_worker(worker, len(self.workers), thread.now)
                    born = thread.now
                    fresh = WorkerThread(Writer(process, files=self._files), born + round(loader.worker_start_ms * MS))
                    fresh.writer.put(
                        WorkerStart, born, fresh.free, 0,
                        name=loader.dataset, worker=worker,
                    )  # fmt: skip
                    self._current.append(fresh)
                    self.workers.append(fresh)
            else:
                thread.spend(100_000)
        thread.writer.put(
            LoaderStart, begin, thread.now, thread.step, name=loader.dataset, workers=loader.workers,
            loader=1, persistent=int(loader.persistent), reused=int(reused),
            site=places.site(places.LOADER_LINE),
        )  # fmt: skip
        self._open, self._given, self._asked = True, 0, 0
        self._ready.clear()
        for _ in range(loader.workers * loader.prefetch):
            self._ask(thread)

    def _ask(self, thread: Thread) -> None:
        """Ask the next worker in turn for the next batch of this iterator; it makes one after the other."""
        loader = self.loader
        if loader.epoch is not None and self._asked >= loader.epoch:
            return
        number = self._asked
        self._asked += 1
        worker = self._current[number % loader.workers]
        begin = max(worker.free, thread.now)
        end = begin + thread.noisy(value(loader.fetch_ms, thread.rank, self._total - self._given + number) * MS)
        worker.free = self._ready[number] = end
        frames = (*places.loop(places.BATCH_LINE), *places.WORKER, places.FETCH, loader.place, *loader.below)
        worker.activities.append(Activity(begin, end, frames, loader.state, "data", worker.fetches, loader.cpu_share))
        worker.writer.put(
            Fetch, begin, end, worker.fetches, name=loader.dataset, samples=loader.samples,
            cpu_ns=round((end - begin) * loader.cpu_share), worker=number % loader.workers + 1,
        )  # fmt: skip
        worker.fetches += 1

    def _from_workers(self, thread: Thread, grad: int) -> None:
        begin = thread.now
        thread.until(self._ready[self._given], *places.QUEUE_GET)
        thread.spend(HAND_OVER_NS, state=NATIVE)
        self._ask(thread)
        self._record(thread, begin, grad=grad)

    def _fetch_here(self, thread: Thread, grad: int) -> None:
        loader = self.loader
        begin = thread.now
        ns = thread.noisy(value(loader.fetch_ms, thread.rank, self._total) * MS)
        thread.spend(ns, places.FETCH, loader.place, *loader.below, state=loader.state, cpu=loader.cpu_share)
        thread.writer.put(
            Fetch, begin, thread.now, thread.step, name=loader.dataset, samples=loader.samples,
            cpu_ns=round(ns * loader.cpu_share), worker=0,
        )  # fmt: skip
        self._record(thread, begin, grad=grad)

    def _wait(self, thread: Thread, begin: int, end: int, grad: int, ended: int) -> None:
        thread.until(end, state=NATIVE)
        self._record(thread, begin, grad=grad, ended=ended)

    def _record(self, thread: Thread, begin: int, *, grad: int, ended: int = 0) -> None:
        thread.writer.put(
            BatchWait, begin, thread.now, thread.step, name=self.loader.dataset, ordinal=self._given,
            loader=1, workers=self.loader.workers, grad=grad, ended=ended,
        )  # fmt: skip
