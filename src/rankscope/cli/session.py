"""Putting the parts together: from a run's folder to its report, its details and its files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import load
from rankscope.base.manifest import Manifest, read_manifest
from rankscope.base.rundir import RunDir, ring_folders
from rankscope.collector.collector import Collector
from rankscope.recorder.recorder import Recorder
from rankscope.report.build import build_report
from rankscope.report.build_details import build_details
from rankscope.report.details import Details, details_to_json
from rankscope.report.report import Report, to_json
from rankscope.store.open import open_store
from rankscope.store.sql_store import SqlStore
from rankscope.store.store import Store
from rankscope.wire.spool import Spool


def analyse(run: RunDir) -> tuple[Report, Details]:
    """The report of a run whose recorder has ended, however it ended: what was left behind is collected first."""
    manifest = read_manifest(run.root)
    with _writable(run) as folder, opened(folder) as store:
        collect_rest(folder, store)
        return report_of(store, manifest, folder)


def report_of(store: Store, manifest: Manifest, run: RunDir) -> tuple[Report, Details]:
    """The report of what a store holds now."""
    facts = Facts(load(store))
    report = build_report(facts, manifest)
    return report, build_details(facts, report, run.sources)


@contextmanager
def opened(run: RunDir) -> Iterator[SqlStore]:
    """The run's store, migrated, closed at the end."""
    with open_store(run.store) as store:
        store.migrate()
        yield store


def collect_rest(run: RunDir, store: Store) -> None:
    """Take what a killed recorder left: frames in the spool, records in rings."""
    spool = Spool(run.spool)
    collector = Collector(store)
    collector.drain(spool)
    if any(any(folder.glob("*.ring")) for folder in ring_folders(run) if folder.is_dir()):
        recorder = Recorder(ring_folders(run), spool, resume=acknowledged(store))
        recorder.finish()
        collector.drain(spool)


def acknowledged(store: Store) -> dict[tuple[int, int], int]:
    """(process, lane) -> the last commit number that the store holds."""
    table = store.query("SELECT process, lane, max(commit) AS last FROM slots GROUP BY process, lane")
    columns = [table.column(name).to_pylist() for name in ("process", "lane", "last")]
    return {(process, lane): last for process, lane, last in zip(*columns, strict=True)}


def save(run: RunDir, report: Report, details: Details) -> None:
    """Keep the report in the run's folder, for `runs`, `show`, `compare` and the dashboard."""
    write_text(run.report, to_json(report))
    write_text(run.root / "details.json", details_to_json(details))


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OSError."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _writable(run: RunDir) -> Iterator[RunDir]:
    """The run's folder, or a copy of it where it must not be written to."""
    if os.access(run.root, os.W_OK):
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="rankscope-") as folder:
        copy = Path(folder) / run.root.name
        shutil.copytree(run.root, copy)
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        yield RunDir(copy)
