"""A run while it goes on: recorder, spool and store together, looked at from time to time."""

from __future__ import annotations

import json
import logging
from types import TracebackType
from typing import TYPE_CHECKING

from rankscope.base.clock import now_ns
from rankscope.base.errors import UserError
from rankscope.base.guard import guard
from rankscope.base.manifest import read_manifest
from rankscope.base.rundir import RunDir, ring_folders
from rankscope.cli.session import keep_named_sources, open_when_free, report_of, resume_points, save
from rankscope.collector.collector import Collector
from rankscope.recorder.recorder import Recorder
from rankscope.store.sql_store import SqlStore
from rankscope.store.store import StoreError
from rankscope.wire.spool import Spool

if TYPE_CHECKING:
    from typing_extensions import Self

COMMIT_EVERY_NS = 10_000_000_000
"""How long a frame stays in the spool at the most."""
FIRST_LOOK_NS = 30_000_000_000
"""When a run is analysed for the first time; before, few have finished their warm-up."""
LONGEST_PAUSE_NS = 300_000_000_000
"""No finding of a long run is told later than this, as long as an analysis is short."""
TIMES_AS_LONG = 50
"""Between two analyses passes so many times what one takes: together they use at most 2 % of one CPU."""

log = logging.getLogger("rankscope")


class Recording:
    """Call `tick` about ten times a second. A store that refuses (a full disk) stops nothing: frames stay spooled."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._spool = Spool(run.spool)
        self._store: SqlStore | None = None
        self._open_store()
        self._commit()
        self._recorder = Recorder(ring_folders(run), self._spool, resume=resume_points(self._store, self._spool))
        self._told: set[tuple[str, tuple[int, ...]]] = set()
        self._next_commit = now_ns() + COMMIT_EVERY_NS
        self._next_look = now_ns() + FIRST_LOOK_NS
        self._pause = FIRST_LOOK_NS

    @property
    def alive(self) -> int:
        """Observed processes that still exist."""
        return self._recorder.alive

    @property
    def seen(self) -> int:
        """Observed processes so far."""
        return self._recorder.seen

    def tick(self) -> int:
        """Read the rings; commit and look at the run when it is time. The time at which it was called."""
        now = now_ns()
        self._recorder.tick()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_EVERY_NS
            self._commit()
            self._recorder.close_ended()
        if now >= self._next_look or self._asked():
            self._look()
            # Ever rarer: an analysis costs time that the ranks could use.
            self._pause = min(self._pause * 2, LONGEST_PAUSE_NS)
            self._next_look = now_ns() + max(self._pause, TIMES_AS_LONG * (now_ns() - now))
        return now

    def _asked(self) -> bool:
        """Whether `rankscope diagnose` waits for a report of this run."""
        return (self.run.root / "report.request").exists()

    def _open_store(self) -> None:
        try:
            self._store = open_when_free(self.run)
        except (UserError, StoreError, OSError) as error:
            log.error("no store yet, frames stay in the spool: %s", error)

    def _commit(self) -> None:
        if self._store is None:
            return
        try:
            Collector(self._store).drain(self._spool)
        except (StoreError, OSError) as error:
            log.error("not committed, frames stay in the spool: %s", error)

    def _look(self) -> None:
        """Analyse what is there so far; tell each new finding once."""
        with guard("looking at the run so far"):
            self._recorder.flush()
            self._commit()
            if self._store is not None:
                report, details = report_of(self._store, read_manifest(self.run.root), self.run)
                save(self.run, report, details)
                with self.run.alerts.open("a", encoding="utf-8") as file:
                    for finding in report.findings:
                        key = (finding.cause, finding.ranks)
                        if finding.severity != "info" and key not in self._told:
                            self._told.add(key)
                            file.write(json.dumps({"finding": finding.id, "step": report.run.steps}) + "\n")
        (self.run.root / "report.request").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with guard("keeping the last records"):
            self._recorder.finish()
            self._commit()
        if self._store is None:
            return
        with guard("keeping source files"):
            keep_named_sources(self.run, self._store)
        self._store.close()
