"""One process a node: reads every ring of the run, adds what only the outside sees, and writes frames to the spool."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankscope.base.clock import now_ns
from rankscope.base.guard import guard
from rankscope.recorder import counters
from rankscope.recorder.fault_files import read_fault
from rankscope.recorder.outside import OutsideLooks
from rankscope.recorder.own_records import OwnRecords
from rankscope.recorder.progress import Progress
from rankscope.recorder.ring_reader import NotARing, RingReader
from rankscope.recorder.sockets import Sockets
from rankscope.records.host import SILENT_NS, Counter, Fault, Lost, ProcessEnd, StackSample
from rankscope.records.payload import PROCESS, Payload
from rankscope.records.process import Process, decode_process
from rankscope.records.rows import ROW_DTYPE
from rankscope.records.slot import SLOT_FIELDS
from rankscope.wire.frame import Frame
from rankscope.wire.spool import Spool, SpoolFull

log = logging.getLogger("rankscope")
SLOT_NAMES = [name for name, _ in SLOT_FIELDS]

LOOK_EVERY_NS = 500_000_000
"""At states and queues, of which each look sees a moment only."""
COUNT_EVERY_NS = 1_000_000_000
"""What adds up by itself."""
FIND_OTHERS_EVERY_NS = 2_000_000_000
FLUSH_EVERY_NS = 10_000_000_000
FLUSH_ROWS = 12_000
"""Of one ring since the last frame: a recorder that is killed now and started again still finds them in the ring.
Rarer frames are cheaper: what the store does for one costs 20 ms of CPU, however many rows it has."""
MAX_ROWS_HELD = 100_000
"""While the disk is full: 8 MB, half a minute of the busiest programs."""
MAX_TEXTS_HELD = 20_000
PENDING_LANE = 60_000
"""Lane of operations that have not returned; of no ring's lanes."""
ROWS_A_FRAME = 50_000
"""4 MB: a frame is held in memory whole, here and where it is stored."""
SETTLED_NS = 1_000_000_000
"""A file that is being created has its header by then."""


@dataclass(slots=True)
class _Watched:
    reader: RingReader
    role: str = ""
    ended: bool = False
    closed: bool = False
    dropped: int = 0
    payloads_dropped: int = 0
    fresh: int = 0
    """Rows read since the last flush."""
    pending: int = 0
    """Commit of the pending operation that was written last."""
    handle: int = -1
    """pidfd: becomes readable when the process ends."""


class Recorder:
    """Call `tick` some times a second, `finish` at the end. Nothing here waits for anyone."""

    def __init__(
        self,
        ring_folders: Sequence[Path],
        spool: Spool,
        *,
        node: int = 0,
        resume: dict[tuple[int, int], int] | None = None,
        clock: Callable[[], int] = now_ns,
    ) -> None:
        self._folders = ring_folders
        self._spool = spool
        self._node = node
        self._resume = resume or {}
        self._clock = clock
        self._rings: dict[Path, _Watched] = {}
        self._settled: dict[Path, int] = {}
        """Folders whose rings are all open, and when they had changed last."""
        self._own = OwnRecords(node)
        self._held: list[NDArray[np.void]] = []
        self._held_rows = 0
        self._payloads: list[Payload] = []
        self._next_look = self._next_count = self._next_others = self._next_flush = 0
        self._others: dict[int, int] = {}
        self._sockets = Sockets()
        self._progress = Progress()
        self._sampled: dict[int, int] = {}
        """pid of a rank -> when its own sampler wrote last."""
        self._outside = OutsideLooks(self._own)
        self._no_rings: set[Path] = set()
        """Files that should be rings and have been told of."""
        cpus = tuple(os.sched_getaffinity(0))
        description = Process(os.getpid(), role="recorder", rank=-1, host=socket.gethostname(), cpus_allowed=cpus)
        self._own.payload(PROCESS, 0, description.encode())

    # -- one round ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Read what is new; count and flush when it is time."""
        now = self._clock()
        self._progress.tick(now)
        self._find_rings()
        for watched in self._rings.values():
            if not watched.closed:
                self._read(watched)
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_NS
            self._look(now)
        if now >= self._next_flush or max((w.fresh for w in self._rings.values()), default=0) >= FLUSH_ROWS:
            self._next_flush = now + FLUSH_EVERY_NS
            self.flush()

    @property
    def alive(self) -> int:
        """Observed processes that still exist."""
        return sum(not w.ended for w in self._rings.values())

    def stall_due(self) -> bool:
        """Whether a rank has been without progress long enough to be looked at; then what it is in is written.

        Where a rank's own sampler is silent, it comes some ticks later: when that rank has been seen from outside.
        """
        now = self._clock()
        if not self._outside.busy:
            if not self._progress.due(now, self._ranks()):
                return False
            with guard("looking at ranks from outside"):
                self._outside.begin(self._silent(now))
        if not self._outside.done(now):
            return False
        for watched in self._rings.values():
            if not watched.closed:
                self._note_pending(watched)
        return True

    def _silent(self, now: int) -> list[int]:
        """Ranks whose sampler has written nothing for long: first those that had one, then who moved longest ago."""
        silent = [pid for pid in self._ranks() if now - self._sampled.get(pid, 0) > SILENT_NS]
        return sorted(silent, key=lambda pid: (pid not in self._sampled, self._progress.moved(pid)))

    @property
    def handles(self) -> list[int]:
        """Files that become readable when a process ends; how it ended can be asked until it is waited for."""
        return [w.handle for w in self._rings.values() if w.handle >= 0]

    @property
    def seen(self) -> int:
        return len(self._rings)

    def _find_rings(self) -> None:
        for folder in self._folders:
            try:
                changed = os.stat(folder).st_mtime_ns
                if self._settled.get(folder) == changed:
                    continue
                entries = list(os.scandir(folder))
            except OSError:
                continue
            opened = [self._open(Path(entry.path)) for entry in entries if entry.name.endswith(".ring")]
            # Time stamps of files are coarse: a folder that has just changed may change again within the same one.
            if all(opened) and time.time_ns() - changed > SETTLED_NS:
                self._settled[folder] = changed

    def _open(self, path: Path) -> bool:
        """Whether a ring can be read; where its header is not there yet, the next round tries again."""
        if path in self._rings:
            return True
        try:
            pid = int(path.name.split("-", 1)[0])
            resume = {lane: commit for (process, lane), commit in self._resume.items() if process == pid}
            watched = self._rings[path] = _Watched(RingReader(path, resume))
            with suppress(AttributeError, OSError):  # Linux before 5.3, or the process has ended already
                watched.handle = os.pidfd_open(pid)
        except (NotARing, ValueError, OSError) as error:
            with guard("asking for a file's age"):
                if path not in self._no_rings and time.time_ns() - path.stat().st_mtime_ns > SETTLED_NS:
                    self._no_rings.add(path)
                    log.error("%s: cannot be read as a ring (%s); what its process wrote is lost", path, error)
                    self._own.add(Lost.code, "ring unreadable", self._clock(), 1, 0)
            return path in self._no_rings
        return True

    def _read(self, watched: _Watched) -> None:
        reader = watched.reader
        alive = reader.alive()
        for payload in reader.payloads(self._node):
            if payload.kind == PROCESS:
                with guard("reading a process's description"):
                    watched.role = decode_process(payload.text).role
            self._payloads.append(payload)
        watched.fresh += self._take(reader, watched.role)
        if alive or watched.ended:
            return
        watched.ended = True
        torn = 0
        while skipped := reader.give_up_torn():
            torn += skipped
            self._take(reader, watched.role)
        self._note_lost("torn by the end of the process", torn, reader.pid)
        self._note_pending(watched)
        self._note_dropped(watched)
        if watched.handle >= 0:
            os.close(watched.handle)
            watched.handle = -1
        for depth, place in enumerate(read_fault(reader.path)):
            self._own.add(Fault.code, place, self._clock(), reader.pid, depth)
        status = reader.exit_status
        how = 0 if status is None else status & 0xFFFF | 1 << 16
        self._own.add(ProcessEnd.code, "", self._clock(), reader.pid, int(reader.said_goodbye), how)

    def _note_pending(self, watched: _Watched) -> None:
        """The operation that the process is in, or was in last: its own record is missing where it never returned."""
        slot = watched.reader.pending()
        if len(slot) and int(slot["commit"][0]) != watched.pending:
            watched.pending = int(slot["commit"][0])
            self._hold(slot, watched.reader.pid, PENDING_LANE)

    def _note_lost(self, why: str, count: int, pid: int) -> None:
        if count:
            self._own.add(Lost.code, why, self._clock(), count, pid)

    def _note_dropped(self, watched: _Watched) -> None:
        """What the process itself could not write, as far as it has not been told yet."""
        reader = watched.reader
        dropped, texts = reader.dropped, reader.payloads_dropped
        self._note_lost("no lane free for another thread", dropped - watched.dropped, reader.pid)
        self._note_lost("names: region full", texts - watched.payloads_dropped, reader.pid)
        watched.dropped, watched.payloads_dropped = dropped, texts

    def _take(self, reader: RingReader, role: str) -> int:
        before = self._held_rows
        news, lost = reader.read()
        for lane, slots in news:
            self._hold(slots, reader.pid, lane)
            if role == "rank":
                self._progress.note(reader.pid, slots)
                sampled = slots["time_ns"][slots["kind"] == StackSample.code]
                if len(sampled):
                    self._sampled[reader.pid] = int(sampled[-1])
        self._note_lost("ring overrun", lost, reader.pid)
        return self._held_rows - before

    def _hold(self, slots: NDArray[np.void], pid: int, lane: int) -> None:
        rows = np.empty(len(slots), ROW_DTYPE)
        rows["process"], rows["lane"], rows["node"] = pid, lane, self._node
        for name in SLOT_NAMES:
            rows[name] = slots[name]
        self._held.append(rows)
        self._held_rows += len(rows)

    def _look(self, now: int) -> None:
        """Write what the outside sees of the processes that still run."""
        running = [w for w in self._rings.values() if not w.ended]
        if not running:
            return
        for watched in running:
            self._add(counters.process_states(watched.reader.pid), now)
        for pid, (unsent, unread) in self._sockets.queues(self._ranks()).items():
            self._add([("send_queue_bytes", unsent, pid), ("receive_queue_bytes", unread, pid)], now)
        if now >= self._next_count:
            self._next_count = now + COUNT_EVERY_NS
            self._count(running, now)
        if now >= self._next_others:
            self._next_others = now + FIND_OTHERS_EVERY_NS
            observed = {watched.reader.pid for watched in running}
            busy, self._others = counters.other_processes(observed | {os.getpid()}, self._others)
            self._add([(f"other:{process.name}", process.cpu_ns, process.pid) for process in busy], now)

    def _count(self, running: list[_Watched], now: int) -> None:
        for watched in running:
            pid = watched.reader.pid
            self._add(counters.process_counters(pid), now)
            if watched.role != "loader-worker":
                self._add(counters.cgroup_counters(pid), now)
            self._note_dropped(watched)
        self._add(counters.machine_counters(), now)
        used = time.process_time_ns() + int(sum(os.times()[2:4]) * 1e9)  # its children included
        self._add([("recorder_cpu_ns", used, os.getpid())], now)

    def _add(self, readings: list[counters.Reading], now: int) -> None:
        for name, value, of in readings:
            self._own.add(Counter.code, name, now, value, of)

    def _ranks(self) -> list[int]:
        """pids of the training processes that still run."""
        return [w.reader.pid for w in self._rings.values() if not w.ended and w.role == "rank"]

    # -- out ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Put what is held into the spool; on a full disk it stays held, up to a bound, and the rest is counted."""
        for watched in self._rings.values():
            watched.fresh = 0
        slots, payloads = self._own.take()
        if len(slots):
            self._hold(slots, self._own.pid, 0)
        self._payloads += payloads
        if not self._held and not self._payloads:
            return
        rows = np.concatenate(self._held) if self._held else np.empty(0, ROW_DTYPE)
        texts = tuple(self._payloads)
        done = 0
        try:
            while True:
                part = rows[done : done + ROWS_A_FRAME]
                self._spool.put(Frame(self._spool.next_number, self._node, part.tobytes(), texts))
                texts = ()
                done += len(part)
                if done >= len(rows):
                    break
        except SpoolFull:
            rows = rows[done:]
            self._note_lost("disk full", max(0, len(rows) - MAX_ROWS_HELD), 0)
            rows = rows[-MAX_ROWS_HELD:]
            self._note_lost("names: disk full", max(0, len(texts) - MAX_TEXTS_HELD), 0)
            self._held, self._held_rows, self._payloads = [rows], len(rows), list(texts[:MAX_TEXTS_HELD])
            return
        self._held, self._held_rows, self._payloads = [], 0, []

    def finish(self, *, keep_rings: bool = False) -> bool:
        """Read the rest and remove the rings of processes that have ended; False where something could not be kept."""
        self._outside.close()
        self.tick()
        self.flush()
        kept = not self._held
        if keep_rings:
            return kept
        self.close_ended()
        for folder in self._folders:
            try:
                os.rmdir(folder)
            except OSError:
                continue  # another process of the run still writes there
        return kept

    def close_ended(self) -> None:
        """Remove the rings of ended processes whose records are in the spool (loader workers of past epochs)."""
        if self._held:
            return
        for path, watched in self._rings.items():
            if watched.ended and not watched.closed:
                watched.closed = True
                watched.reader.close()
                path.unlink(missing_ok=True)
