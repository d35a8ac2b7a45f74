"""The runs of a folder: all of them, or the one that a user means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rankscope.base.errors import UserError
from rankscope.base.manifest import Manifest, read_manifest
from rankscope.base.rundir import RunDir, default_runs_dir
from rankscope.report.report import Report, from_json
from rankscope.store.lock import holder


@dataclass(frozen=True, slots=True)
class Kept:
    """One folder of the history; `damage` says why it cannot be read, then there is no manifest."""

    run: RunDir
    manifest: Manifest | None
    damage: str = ""

    @property
    def state(self) -> str:
        """`finished`, `running`, `ended unseen` (its recorder was killed) or `damaged`."""
        if self.manifest is None:
            return "damaged"
        if holder(self.run.root) is not None and not self.manifest.finished:
            return "running"
        return "finished" if self.manifest.finished else "ended unseen"


def history(folder: Path) -> list[Kept]:
    """Every run in `folder`, oldest first; folders that are no runs are left out, damaged runs are not."""
    try:
        roots = sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError as error:
        if folder == default_runs_dir().absolute():
            return []  # nothing has been recorded here yet
        raise UserError(f"{folder}: there is no such folder; give another one with --runs-dir") from error
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror}); give another folder with --runs-dir") from error
    found = [kept for root in roots if (kept := _kept(RunDir(root))) is not None]
    return sorted(found, key=lambda kept: (kept.manifest.started if kept.manifest else "", kept.run.id))


def _kept(run: RunDir) -> Kept | None:
    try:
        return Kept(run, read_manifest(run.root))
    except UserError as error:
        # A folder of somebody else is none of our business; one with our parts in it has lost its manifest.
        ours = run.manifest.exists() or any(part.is_dir() for part in (run.store, run.spool, run.rings))
        return Kept(run, None, str(error)) if ours else None


def find_run(text: str, folder: Path) -> RunDir:
    """The run that `text` means: a folder, an id, the unique start of one, a name, or `last`. UserError otherwise."""
    if Path(text).is_dir():
        read_manifest(Path(text))
        return RunDir(Path(text).absolute())
    known = [kept for kept in history(folder) if kept.manifest is not None]
    if text == "last" and known:
        return known[-1].run
    named = [kept for kept in known if kept.manifest and text in (kept.run.id, kept.manifest.name)]
    matches = named[-1:] or [kept for kept in known if kept.run.id.startswith(text)]
    if len(matches) == 1:
        return matches[0].run
    if matches:
        some = ", ".join(kept.run.id for kept in matches[:4])
        raise UserError(f"{text!r} begins the ids of {len(matches)} runs ({some}); write more of it")
    raise UserError(f"there is no run {text!r} in {folder}; `rankscope runs` lists them, --runs-dir chooses the folder")


def read_report(run: RunDir) -> Report:
    """The report that was kept with a run; UserError where none was, with the way to one."""
    return read_report_file(run.report, f"run {run.id} has no report; make it with `rankscope diagnose {run.root}`")


def read_report_file(path: Path, missing: str = "") -> Report:
    """The report in a file. UserError where it cannot be used; `missing` is what to say where there is none."""
    try:
        return from_json(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        raise UserError(missing or f"{path}: does not exist") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def report_of_text(text: str, folder: Path) -> Report:
    """The report of a run (folder, id, name, `last`), or the one in a JSON file."""
    return read_report_file(Path(text)) if Path(text).is_file() else read_report(find_run(text, folder))
