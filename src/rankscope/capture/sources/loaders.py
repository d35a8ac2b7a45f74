"""Where batches come from: the rank's wait, and the work of the loader's workers."""

from __future__ import annotations

import weakref
from functools import wraps
from threading import get_ident
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from rankscope.base.guard import guard, swallow
from rankscope.capture.listeners import tell
from rankscope.capture.patches import Patches
from rankscope.capture.random_states import note_states
from rankscope.capture.sample_errors import MOST_ERRORS, note_error
from rankscope.capture.source import Source
from rankscope.records.batches import RandomState, SampleError
from rankscope.records.loading import BatchWait, Fetch, LoaderStart, PendingFetch, WorkerStart

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent


QUICK_FETCH_NS = 500_000


class Loaders(Source):
    """DataLoader iterators on the rank; fetchers in workers, which inherit (fork) or repeat (spawn) the patches."""

    name = "loaders"
    emits = (BatchWait, LoaderStart, Fetch, PendingFetch, WorkerStart, RandomState, SampleError)
    stage = "data"

    def install(self, agent: Agent) -> None:
        import torch
        from torch.utils.data import dataloader
        from torch.utils.data._utils import fetch, worker

        self._agent = agent
        self._patches = Patches()
        self._loaders: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._passes: dict[int, int] = {}
        self._errors = 0
        self._slow_fetches = True
        self._is_grad_enabled = torch.is_grad_enabled
        self._data = agent.name("data")
        base = dataloader._BaseDataLoaderIter
        self._patches.replace(base, "__next__", self._next(base.__next__))
        self._patches.replace(dataloader.DataLoader, "__iter__", self._iter(dataloader.DataLoader.__iter__))
        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            self._patches.replace(kind, "fetch", self._fetch(kind.fetch))
        self._patches.replace(worker, "_worker_loop", self._worker_loop(worker._worker_loop))

    def remove(self) -> None:
        self._patches.undo()

    def _named(self, owner: Any, dataset: Any) -> int:
        """Name id of the innermost dataset's class (Subset and ConcatDataset say nothing), kept at its iterator."""
        known: int = owner.__dict__.get("_rankscope_name", 0)
        if not known:
            inner = dataset
            while type(inner).__module__.startswith("torch.") and hasattr(inner, "dataset"):
                inner = inner.dataset
            known = owner.__dict__["_rankscope_name"] = self._agent.name(type(inner).__name__)
        return known

    def _next(self, original: Any) -> Any:
        agent, data = self._agent, self._data
        describe, grad_enabled = self._describe, self._is_grad_enabled

        @wraps(original)
        def __next__(iterator: Any) -> Any:
            if agent.ended or agent.in_next or agent.thread != get_ident() or agent.role != "rank":
                return original(iterator)
            timing = agent.timing
            t0 = monotonic_ns() if timing else 0
            try:
                if agent.ring is None:
                    agent.open()
                name, flags = iterator.__dict__.get("_rankscope") or describe(iterator)
                ordinal = iterator._num_yielded
            except Exception as error:  # noqa: BLE001
                swallow("describing a loader", error)
                name = flags = ordinal = 0
            before, agent.phase = agent.phase, data
            agent.in_next = True
            given = ended = False
            t1 = monotonic_ns()
            try:
                batch = original(iterator)
                given = True
                return batch
            except StopIteration:
                ended = True
                raise
            finally:
                t2 = monotonic_ns()
                if given and agent.on_batch:
                    tell(agent.on_batch, "looking at a batch", iterator, batch, name, ordinal, flags)
                elif not (given or ended):
                    _drop_order(iterator)
                agent.in_next = False
                agent.phase = before
                try:
                    flags |= grad_enabled() << 52 | ended << 53
                    agent.put(t1, t2 - t1, BatchWait.code, name, agent.step, ordinal, 0, flags)
                    if timing:
                        agent.own_ns += t1 - t0 + monotonic_ns() - t2
                        agent.hidden_ns += agent.wrapper_ns
                        agent.hooks += 1
                except Exception as error:  # noqa: BLE001
                    swallow("recording a batch", error)

        return __next__

    def _describe(self, iterator: Any, number: int = 0) -> tuple[int, int]:
        """(name, number of its loader and of its workers) of an iterator, kept at it."""
        known = self._named(iterator, iterator._dataset), number | min(iterator._num_workers, 4095) << 16
        iterator.__dict__["_rankscope"] = known
        return known

    def _number(self, loader: Any) -> int:
        known = self._loaders.get(id(loader))
        if known is None or known[0]() is not loader:
            known = self._loaders[id(loader)] = (weakref.ref(loader), len(self._loaders) + 1)
        return known[1]

    def _iter(self, original: Any) -> Any:
        agent, data = self._agent, self._data

        @wraps(original)
        def __iter__(loader: Any) -> Any:
            if agent.ended or agent.thread != get_ident() or agent.role != "rank":
                return original(loader)
            if agent.ring is None:
                with guard("opening the ring"):
                    agent.open()
            before, agent.phase = agent.phase, data
            reused = getattr(loader, "_iterator", None) is not None
            t1 = monotonic_ns()
            try:
                iterator = original(loader)
            finally:
                t2 = monotonic_ns()
                agent.phase = before
            try:
                number = self._number(loader)
                name, _ = self._describe(iterator, number)
                passes = self._passes[number] = self._passes.get(number, -1) + 1
                iterator.__dict__["_rankscope_pass"] = passes
                flags = number | bool(loader.persistent_workers) << 16 | reused << 17 | agent.site() << 32
                agent.put(t1, t2 - t1, LoaderStart.code, name, agent.step, loader.num_workers, 0, flags)
                if agent.timing:
                    agent.own_ns += monotonic_ns() - t2
            except Exception as error:  # noqa: BLE001
                swallow("recording a loader start", error)
            return iterator

        return __iter__

    def _fetch(self, original: Any) -> Any:
        agent = self._agent

        @wraps(original)
        def fetch(fetcher: Any, indices: Any) -> Any:
            if agent.ended or agent.thread != get_ident():
                return original(fetcher, indices)
            # A quick fetch does nothing but compute: asking for its CPU time would cost more than the fetch.
            cpu = thread_time_ns() if self._slow_fetches or agent.role != "rank" else 0
            t1 = self._fetch_begins(fetcher, indices) if agent.role != "rank" else monotonic_ns()
            try:
                return original(fetcher, indices)
            except Exception as error:
                self._fetch_failed(fetcher, indices, error)
                raise
            finally:
                t2 = monotonic_ns()
                try:
                    used = thread_time_ns() - cpu if cpu else t2 - t1
                    self._slow_fetches = t2 - t1 > QUICK_FETCH_NS
                    if agent.ring is None:
                        agent.open()
                    if agent.role != "rank":
                        self._first_fetch(fetcher, t1)
                    count, first = _count(indices), _first_index(indices)
                    name = fetcher.__dict__.get("_rankscope_name", 0) or self._named(fetcher, fetcher.dataset)
                    agent.put(t1, t2 - t1, Fetch.code, name, agent.step, count, used, agent.worker + 1 | first << 16)
                    if agent.role == "rank":
                        if agent.timing:
                            agent.own_ns += monotonic_ns() - t2
                            agent.hidden_ns += agent.wrapper_ns
                            agent.hooks += 1
                    else:
                        agent.step += 1
                        note_states(agent, fetcher)
                except Exception as error:  # noqa: BLE001
                    swallow("recording a fetch", error)

        return fetch

    def _fetch_failed(self, fetcher: Any, indices: Any, error: Exception) -> None:
        if self._errors >= MOST_ERRORS:
            return
        with guard("noting an error of a dataset"):
            dataset = self._named(fetcher, fetcher.dataset)
            self._errors += note_error(self._agent, fetcher, indices, error, dataset)

    def _fetch_begins(self, fetcher: Any, indices: Any) -> int:
        """The time at which a worker begins a batch, which is noted: it may be its last."""
        agent = self._agent
        with guard("noting a fetch that begins"):
            agent.open()
            if not agent.step:
                note_states(agent, fetcher)
            worker = agent.worker + 1 | _first_index(indices) << 16
            begin = monotonic_ns()
            agent.pending(begin, 0, PendingFetch.code, 0, agent.step, _count(indices), 0, worker)
            return begin
        return monotonic_ns()

    def _first_fetch(self, fetcher: Any, begin: int) -> None:
        agent = self._agent
        if agent.step == 0 and agent.started_ns:
            name = self._named(fetcher, fetcher.dataset)
            agent.put(agent.started_ns, begin - agent.started_ns, WorkerStart.code, name, 0, agent.worker, 0, 0)

    def _worker_loop(self, original: Any) -> Any:
        agent = self._agent

        @wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            with guard("entering a loader worker"):
                agent.role = "loader-worker"
                # (dataset_kind, dataset, index_queue, data_queue, done, auto_collation, collate, drop_last, seed,
                #  init_fn, worker_id, ...)
                agent.worker = int(args[10]) if len(args) > 10 and isinstance(args[10], int) else 0
                agent.phase = self._data
                agent.thread = get_ident()
                agent.open()
            return original(*args, **kwargs)

        return _worker_loop


def _drop_order(iterator: Any) -> None:
    """The batch did not come: what was noted of its indices goes with it."""
    waiting = iterator.__dict__.get("_rankscope_orders")
    if waiting is not None and waiting[1]:
        waiting[1].popleft()


def _count(indices: Any) -> int:
    """Samples that a fetch is asked for."""
    return len(indices) if hasattr(indices, "__len__") else 1


def _first_index(indices: Any) -> int:
    """The first sample's index, where it is a number."""
    first = indices[0] if isinstance(indices, list) and indices else 0
    return first & ((1 << 40) - 1) if isinstance(first, int) else 0
