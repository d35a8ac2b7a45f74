"""Made-up runs that stop: ranks that train, and then hang, die or leave, one for each cause of a failure."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import make_tables
from rankscope.records.collective import Collective
from rankscope.records.host import CaughtException, Counter, Goodbye, ProcessEnd, StackSample
from rankscope.records.loading import BatchWait
from rankscope.records.process import Process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.training import Backward, Forward, Step
from rankscope.testing.writer import Writer

MS, S = 1_000_000, 1_000_000_000
FILE = "/home/user/train.py"
BACKWARD = f"{FILE}:30:main"
VALIDATE = f"{FILE}:40:validate"
BARRIER = f"{FILE}:60:main"
WAIT = ("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:2900:all_reduce",)
"""Torch's frames below a line that waits for its peers."""
ENGINE = ("/usr/lib/python3/dist-packages/torch/autograd/graph.py:800:_engine_run_backward",)
LOADER = ("/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py:1300:_next_data",)
COMPILER = ("/usr/lib/python3/dist-packages/torch/_inductor/graph.py:900:run",)
THREADS = ("/usr/lib/python3/threading.py:327:wait",)
LOCKED_FILE = "/home/user/cache.py"
LOCKED = f"{LOCKED_FILE}:2:cached"
"""A line that takes a lock. Of what is not on the disk, `linecache` is asked."""
linecache.cache[LOCKED_FILE] = (0, None, ["def cached(key):\n", "    with LOCK:\n", "        return KNOWN[key]\n"], "")
CLOSED = "RuntimeError: Connection closed by peer"
STEPS = 40

End = tuple[int, int, int, int, bool]
"""pid, time, exit code, signal, whether it said goodbye."""


class StoppedRank:
    """One rank that trains 40 steps of 100 ms, each with a reduction, and then does what it is told."""

    def __init__(self, rank: int, size: int, steps: int = STEPS) -> None:
        self.rank = rank
        self.pid = 100 + rank
        self.writer = Writer(Process(self.pid, rank=rank, world_size=size))
        self.workers: list[StoppedRank] = []
        self.now = 0
        self._sequences: dict[str, int] = {}
        for step in range(steps):
            self.step(step)

    def step(self, number: int, *, training: int = 1) -> None:
        """One training step; every tenth ends with a validation on all ranks."""
        self.batch()
        self.passes(number, training)
        self.call("allreduce", BACKWARD, step=number)
        if number % 10 == 9:
            self.call("allgather", VALIDATE, step=number)
        self.now += 100 * MS
        self.writer.put(Step, self.now - 100 * MS, self.now, number)

    def passes(self, step: int, training: int = 1) -> None:
        """A forward and the backward that follows it."""
        flags = {"training": training, "grad": 1, "trained": 1}
        self.writer.put(Forward, self.now, self.now + MS, step, name="Net", model=self.writer.name("Net"), **flags)
        self.writer.put(Backward, self.now + MS, self.now + 2 * MS, step, site="")

    def batch(self, ended: int = 0) -> None:
        """One batch of the training loader, or its end."""
        self.writer.put(BatchWait, self.now, self.now + MS, 0, name="Data", grad=1, ended=ended)

    def call(
        self, operation: str, site: str, group: str = "group:default", shape: str = "float32[10]", step: int = STEPS
    ) -> None:
        """One collective."""
        sequence = self._sequences[group] = self._sequences.get(group, -1) + 1
        self.now += MS
        self.writer.put(
            Collective, self.now, self.now + 10_000, step, name=operation, group=self.writer.name(group),
            sequence=sequence, site=self.writer.name(site), shape=self.writer.name(shape), bytes=40,
        )  # fmt: skip

    def pair(self, operation: str, sender: int, receiver: int, site: str) -> None:
        """One send or receive."""
        group = f"group:default:{sender}>{receiver}"
        sequence = self._sequences[group] = self._sequences.get(group, -1) + 1
        self.now += MS
        self.writer.put(
            Collective, self.now, self.now + 10_000, STEPS, name=operation, group=self.writer.name(group), bytes=40,
            sequence=sequence, site=self.writer.name(site), shape=self.writer.name("float32[10]"), point_to_point=1,
        )  # fmt: skip

    def catch(self, text: str, place: str) -> None:
        """An exception that is logged."""
        self.now += MS
        self.writer.put(CaughtException, self.now, self.now, STEPS, name=text, site=self.writer.name(place))

    def stand(self, seconds: float, *frames: str, below: tuple[str, ...] = ENGINE, asleep: bool = True) -> None:
        """Stack samples, and nothing else."""
        for i in range(int(seconds * 20)):
            at = self.now + 50 * MS * (i + 1)
            self.writer.put(
                StackSample, at, at, STEPS, phase="", stack=self.writer.stack((f"{FILE}:90:<module>", *frames, *below)),
                cpu_ns=0 if asleep else at, late_ns=100_000, state=ord("S" if asleep else "R"), delay_known=1, eager=1,
            )  # fmt: skip
        self.now += int(seconds * S)

    def worker(self) -> StoppedRank:
        """A loader worker of this rank, without any step."""
        made = StoppedRank.__new__(StoppedRank)
        made.rank, made.pid, made.workers, made.now = self.rank, 1000 + self.rank, [], self.now
        made.writer = Writer(Process(made.pid, role="loader-worker", rank=self.rank, parent=self.pid, worker=0))
        made._sequences = {}
        self.workers.append(made)
        return made

    def end(self, *, code: int = 0, signal: int = 0, exception: str = "", place: str = "") -> End:
        """The end of its process, with a goodbye unless a signal ended it."""
        if not signal:
            raised = {"exception": self.writer.name(exception), "raised_ns": self.now} if exception else {}
            self.writer.put(Goodbye, self.now, self.now, STEPS, place=place, **raised)
        return self.pid, self.now, code, signal, not signal


def ranks(size: int, steps: int = STEPS) -> list[StoppedRank]:
    """Ranks that have trained, and wait for orders."""
    return [StoppedRank(rank, size, steps) for rank in range(size)]


def stopped(made: Sequence[StoppedRank], ends: Iterable[End] = ()) -> Facts:
    """The facts of a run with these ranks, as a recorder saw their ends."""
    recorder = Writer(Process(1, role="recorder", rank=-1))
    latest = max(r.now for r in made)
    for pid, at, code, signal, clean in ends:
        recorder.put(ProcessEnd, at, at, 0, of=pid, clean=int(clean), status=code << 8 | signal, known=1)
    processes = [*made, *(worker for r in made for worker in r.workers)]
    for one in processes:
        recorder.put(Counter, latest, latest, 0, name="cpu_ns", value=0, of=one.pid)
    writers = [*(one.writer for one in processes), recorder]
    rows = np.array([row for w in writers for row in w.rows], ROW_DTYPE)
    return Facts(make_tables(rows, [p for w in writers for p in w.payloads()]))


# -- one stop for each cause -------------------------------------------------------------------------------------------


def _died(size: int = 2, **how: int | str) -> Facts:
    """The last rank ends by itself while the others wait for it."""
    made = ranks(size)
    for r in made[:-1]:
        r.call("allreduce", BACKWARD)
        r.stand(0.5, BACKWARD)
    ends = [made[-1].end(**how)]  # type: ignore[arg-type]
    return stopped(made, ends + [r.end(code=1, exception=CLOSED, place=BACKWARD) for r in made[:-1]])


def _uneven() -> Facts:
    first, second = ranks(2)
    first.batch()
    first.call("allreduce", BACKWARD)
    first.stand(9, BACKWARD)
    second.batch(ended=1)
    second.call("barrier", BARRIER)
    second.stand(9, BARRIER, below=WAIT)
    return stopped((first, second))


def _left() -> Facts:
    first, second = ranks(2)
    first.batch()
    first.call("allreduce", BACKWARD)
    first.stand(1, BACKWARD)
    second.now += 100 * MS
    return stopped((first, second), [second.end(), first.end(code=1, exception=CLOSED, place=BACKWARD)])


def _skipped() -> Facts:
    made = ranks(3)
    for r in (made[0], made[2]):
        r.call("allgather", VALIDATE)
        r.stand(9, VALIDATE, below=WAIT)
    made[1].call("allreduce", BACKWARD)
    made[1].stand(9, BACKWARD)
    return stopped(made)


def _order() -> Facts:
    first, second = ranks(2)
    for r, lines in ((first, (41, 42)), (second, (42, 41))):
        operation = "allreduce" if lines[0] == 41 else "broadcast"
        r.call(operation, f"{FILE}:{lines[0]}:sync")
        r.stand(9, f"{FILE}:{lines[0]}:sync", below=WAIT)
    return stopped((first, second))


def _sizes() -> Facts:
    made = ranks(3)
    for r in made:
        r.call("allreduce", f"{FILE}:50:count", shape=f"int64[{11 if r.rank == 2 else 12}]")
        r.stand(0.2, f"{FILE}:50:count", below=WAIT)
    ends = [made[2].end(signal=6)]
    return stopped(made, ends + [r.end(code=1, exception=CLOSED) for r in made[:2]])


def _too_slow() -> Facts:
    first, second = ranks(2)
    second.call("barrier", BARRIER)
    first.stand(18, f"{FILE}:70:tokenise", below=(), asleep=False)
    second.stand(15, BARRIER, below=WAIT)
    timed_out = "RuntimeError: Timed out waiting 15000ms for recv operation to complete"
    ends = [second.end(code=1, exception=timed_out, place=BARRIER), first.end(signal=15)]
    return stopped((first, second), ends)


def _locked() -> Facts:
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(14, BACKWARD)
    second.stand(14, LOCKED, below=())
    return stopped((first, second))


def _locked_worker() -> Facts:
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(14, BACKWARD)
    worker = second.worker()
    worker.stand(14, *LOADER, LOCKED, below=())  # forked inside of the loader
    second.stand(14, f"{FILE}:28:main", below=LOADER)
    return stopped((first, second))


def _modes() -> Facts:
    made = ranks(3)
    for r in made:
        for number in range(STEPS, STEPS + 4):
            r.step(number, training=int(r.rank != 1))
        r.call("allgather" if r.rank != 1 else "allreduce", f"{FILE}:25:forward" if r.rank != 1 else BACKWARD)
        r.stand(9, f"{FILE}:25:forward" if r.rank != 1 else BACKWARD, below=WAIT)
    return stopped(made)


def _network() -> Facts:
    made = ranks(2)
    for r in made:
        r.call("allreduce", BACKWARD)
        r.stand(1, BACKWARD)
    ends = [r.end(code=1, exception="RuntimeError: Connection timed out: No route to host") for r in made]
    return stopped(made, ends)


def _no_group() -> Facts:
    first, second = ranks(2, steps=0)
    first.stand(1, f"{FILE}:10:main", below=WAIT)
    ends = [second.end(code=1, exception="DistNetworkError: EADDRINUSE port: 29500"), first.end(signal=15)]
    return stopped((first, second), ends)


UNUSED = "RuntimeError: no gradient for head.weight: Expected to have finished reduction in the prior iteration"

STOPS: dict[str, Callable[[], Facts]] = {
    "dead-rank": lambda: _died(signal=9),
    "rank-exception": lambda: _died(code=1, exception="ValueError: bad sample", place=f"{FILE}:20:parse"),
    "unused-parameters": lambda: _died(code=1, exception=UNUSED),
    "rendezvous-failure": _no_group,
    "hardware-error": lambda: _died(code=1, exception="AcceleratorError: CUDA error: uncorrectable ECC error"),
    "network-error": _network,
    "uneven-inputs": _uneven,
    "local-early-stop": _left,
    "missing-collective": _skipped,
    "collective-order-mismatch": _order,
    "collective-shape-mismatch": _sizes,
    "slow-rank-timeout": _too_slow,
    "stuck-rank": _locked,
    "loader-deadlock": _locked_worker,
    "mode-mismatch": _modes,
}
"""Cause -> a run that stopped by it. The guilty rank is the last one, or rank 1 of three."""


# -- runs that only look as if they had stopped ------------------------------------------------------------------------


def _ended_well() -> Facts:
    made = ranks(2)
    return stopped(made, [r.end() for r in made])


def _ended_apart() -> Facts:
    first, second = ranks(2)
    second.stand(20, f"{FILE}:80:export", below=(), asleep=False)
    return stopped((first, second), [first.end(), second.end()])


def _one_saves() -> Facts:
    first, second = ranks(2)
    first.stand(120, f"{FILE}:70:save", below=())
    second.call("barrier", BARRIER)
    second.stand(120, BARRIER, below=WAIT)
    return stopped((first, second))


def _one_waits_for_its_threads() -> Facts:
    """A pool of threads uploads; the main thread waits for them, and the other rank for it."""
    first, second = ranks(2)
    first.stand(120, f"{FILE}:70:upload_all", below=THREADS)
    second.call("barrier", BARRIER)
    second.stand(120, BARRIER, below=WAIT)
    return stopped((first, second))


def _worker_downloads() -> Facts:
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(60, BACKWARD)
    second.worker().stand(60, f"{FILE}:20:__getitem__", "/usr/lib/python3/socket.py:718:readinto", below=())
    second.stand(60, f"{FILE}:28:main", below=LOADER)
    return stopped((first, second))


def _interrupted() -> Facts:
    """Ctrl-C between two collectives."""
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    return stopped((first, second), [r.end(code=130, exception="KeyboardInterrupt: ") for r in (first, second)])


def _asked_to_end() -> Facts:
    made = ranks(2)
    return stopped(made, [r.end(signal=15) for r in made])


def _all_compile() -> Facts:
    made = ranks(2)
    for r in made:
        r.stand(90, f"{FILE}:22:forward", below=COMPILER, asleep=False)
    return stopped(made)


HEALTHY_STOPS: dict[str, Callable[[], Facts]] = {
    "all ranks come to their end": _ended_well,
    "ranks end at different times": _ended_apart,
    "one rank saves for two minutes": _one_saves,
    "one rank waits for its own threads": _one_waits_for_its_threads,
    "a loader worker downloads for a minute": _worker_downloads,
    "a user ends the run": _asked_to_end,
    "a user interrupts the run": _interrupted,
    "all ranks compile": _all_compile,
}
