"""Putting the parts together: from a run's folder to its report, its details and its files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import load
from rankscope.base.errors import UserError
from rankscope.base.manifest import Manifest, read_manifest
from rankscope.base.rundir import RunDir, ring_folders
from rankscope.collector.collector import Collector
from rankscope.recorder.recorder import Recorder
from rankscope.recorder.source_files import keep_sources
from rankscope.records.payload import NAME, PROCESS
from rankscope.records.process import decode_process
from rankscope.records.rows import ROW_DTYPE
from rankscope.report.attempts import last_part, part_of, up_to, with_attempts
from rankscope.report.build import build_report
from rankscope.report.build_details import build_details
from rankscope.report.details import Details, details_to_json
from rankscope.report.report import Report, from_json, to_json
from rankscope.store.lock import holder
from rankscope.store.open import open_store
from rankscope.store.sql_store import SqlStore
from rankscope.store.store import Store, StoreError
from rankscope.wire.frame import FrameError
from rankscope.wire.spool import Spool

WAIT_FOR_STORE_S = 20.0
"""A recorder that is just being started again, or another `rankscope diagnose`, lets go of the store by then."""
ROOM_BYTES = 64 << 20
"""What an analysis may need on the disk of the run's folder."""


def analyse(run: RunDir, manifest: Manifest | None = None) -> tuple[Report, Details]:
    """The report of a run whose recorder has ended, however it ended: what was left behind is collected first.

    `manifest`: where it is newer than the one in the folder, which a full disk did not take.
    """
    manifest = manifest or read_manifest(run.root)
    if not _has_room(run.root):
        with _copied(run) as copy:
            return _analyse(copy, manifest, keep_rings=True)
    return _analyse(run, manifest, keep_rings=False)


def _analyse(run: RunDir, manifest: Manifest, *, keep_rings: bool) -> tuple[Report, Details]:
    try:
        with open_when_free(run) as store:
            collect_rest(run, store, keep_rings=keep_rings)
            return report_of(Facts(load(store, last_part(manifest))), manifest, run, store)
    except StoreError as error:
        raise UserError(f"{run.store}: cannot be read ({str(error).splitlines()[0]})") from error


def report_of(facts: Facts, manifest: Manifest, run: RunDir, store: Store) -> tuple[Report, Details]:
    """The report of what has been loaded of a run: of its last attempt, with what earlier ones came to."""
    earlier = {
        attempt.number: attempt_report(run, store, manifest, index)
        for index, attempt in enumerate(manifest.attempts[:-1])
    }
    report = with_attempts(build_report(facts, manifest), manifest, earlier)
    return report, build_details(facts, report, run.sources)


def attempt_report(run: RunDir, store: Store, manifest: Manifest, index: int) -> Report:
    """The report of an earlier attempt: kept when it ended, else, where that did not come about, made and kept now."""
    path = run.attempt_report(manifest.attempts[index].number)
    with suppress(OSError, UserError):
        return from_json(path.read_bytes(), str(path))
    facts = Facts(load(store, part_of(manifest, index)))
    then = up_to(manifest, index)
    report = with_attempts(build_report(facts, then), then, {})
    with suppress(OSError):
        write_text(path, to_json(report))
    return report


def open_when_free(run: RunDir) -> SqlStore:
    """The run's store, migrated. Waits a while for another process that has it open."""
    deadline = time.monotonic() + WAIT_FOR_STORE_S
    while holder(run.store) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        os.getcwd()
    except FileNotFoundError:
        os.chdir(run.root)  # the engine asks for a working folder, and ours has been deleted
    store = open_store(run.store)
    try:
        store.migrate()
    except BaseException:
        store.close()
        raise
    return store


def collect_rest(run: RunDir, store: SqlStore, *, keep_rings: bool = False) -> None:
    """Take what a killed recorder left: frames in the spool, records in rings."""
    spool = Spool(run.spool)
    in_store = int(store.query("SELECT max(number) FROM batches").column(0)[0].as_py() or 0)
    if spool.acknowledged > in_store:
        raise UserError(
            f"{run.store}: does not hold what was recorded ({spool.acknowledged} batches were committed, it has "
            f"{in_store}); put the store back where it was, or record the run again"
        )
    drain(run, store)
    if any(any(folder.glob("*.ring")) for folder in ring_folders(run) if folder.is_dir()):
        recorder = Recorder(ring_folders(run), spool, resume=resume_points(store, spool))
        recorder.finish(keep_rings=keep_rings)
        drain(run, store)
    keep_named_sources(run, store)


def drain(run: RunDir, store: Store) -> None:
    """Commit every frame of the spool."""
    Collector(store).drain(Spool(run.spool))


def keep_named_sources(run: RunDir, store: Store) -> None:
    """Copy the user's source files that samples and call-sites name, so that the report can quote them later.

    A file that was copied before stays as it was then.
    """
    described = store.query(f"SELECT text FROM payloads WHERE kind = {PROCESS}").column(0).to_pylist()
    libraries = {folder for text in described for folder in decode_process(text).library_folders}
    places = store.query(f"SELECT DISTINCT text FROM payloads WHERE kind = {NAME}")
    keep_sources(run.sources, places, tuple(sorted(libraries)))


def resume_points(store: Store | None, spool: Spool) -> dict[tuple[int, int], int]:
    """(process, lane) -> the last commit number that store or spool hold: whatever follows is still to be read."""
    points: dict[tuple[int, int], int] = {}
    if store is not None:
        table = store.query("SELECT process, lane, max(commit) AS last FROM slots GROUP BY process, lane")
        columns = [table.column(name).to_pylist() for name in ("process", "lane", "last")]
        points = {(process, lane): last for process, lane, last in zip(*columns, strict=True)}
    for number, _ in spool.pending():
        try:
            rows = np.frombuffer(spool.load(number).rows, ROW_DTYPE)
        except FrameError:
            continue
        for process, lane in np.unique(rows[["process", "lane"]]).tolist():
            mine = rows["commit"][(rows["process"] == process) & (rows["lane"] == lane)]
            points[process, lane] = max(points.get((process, lane), 0), int(mine.max()))
    return points


def save(run: RunDir, report: Report, details: Details) -> None:
    """Keep the report in the run's folder, and beside it what its HTML page draws. Raises OSError."""
    write_text(run.report, to_json(report))
    write_text(run.root / "details.json", details_to_json(details))


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OSError."""
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with path.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _has_room(folder: Path) -> bool:
    """Whether an analysis can work in a folder: it may be written to and its disk is not full."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return bool(os.access(folder, os.W_OK)) and room.f_bavail * room.f_frsize > ROOM_BYTES


@contextmanager
def _copied(run: RunDir) -> Iterator[RunDir]:
    """A copy of the run's folder that may be written to; the original stays as it is."""
    with tempfile.TemporaryDirectory(prefix="rankscope-") as folder:
        copy = Path(folder) / run.root.name
        try:
            # The engine's links stay links: they point to other places inside the folder.
            shutil.copytree(run.root, copy, symlinks=True)
        except (OSError, shutil.Error) as error:
            raise UserError(f"{run.root}: has no room and cannot be copied to {folder}; free some space") from error
        for path in [copy, *copy.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)
        yield RunDir(copy)
