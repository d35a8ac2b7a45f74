"""What the user gave to `diagnose`: runs, files, folders and archives of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.base.errors import UserError
from rankscope.base.rundir import RunDir

MOST_FILES: Final = 100_000
"""Below one folder: beyond it somebody has given a file system, not a job."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Sorted out."""

    runs: tuple[RunDir, ...]
    files: tuple[Path, ...]


def sort_out(paths: list[str]) -> Inputs | None:
    """Runs and files among `paths`; None where one of them is neither a file nor a folder, but maybe a run's name.

    Raises UserError where something cannot be listed.
    """
    runs: list[RunDir] = []
    files: list[Path] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            if _is_run(path):
                runs.append(RunDir(path.absolute()))
            else:
                files += _files_below(path, runs)
        elif path.exists():
            files.append(path)
        else:
            return None
    return Inputs(tuple(runs), tuple(dict.fromkeys(files)))


def _is_run(folder: Path) -> bool:
    """Whether it is a run of ours, also one that has lost its manifest."""
    run = RunDir(folder)
    return run.manifest.exists() or any(part.is_dir() for part in (run.store, run.spool, run.rings))


def _files_below(folder: Path, runs: list[RunDir]) -> Iterator[Path]:
    count = 0

    def refuse(error: OSError) -> None:
        if Path(error.filename or "") == folder:
            raise UserError(f"{folder}: cannot be listed ({error.strerror})") from error

    for here, folders, names in os.walk(folder, onerror=refuse):
        inner = [name for name in sorted(folders) if _is_run(Path(here) / name)]
        runs += [RunDir((Path(here) / name).absolute()) for name in inner]
        folders[:] = [name for name in sorted(folders) if name not in inner and not name.startswith(".")]
        for name in sorted(names):
            if name.startswith("."):
                continue
            count += 1
            if count > MOST_FILES:
                raise UserError(f"{folder}: has more than {MOST_FILES:,} files; give the folder of one job")
            yield Path(here) / name
