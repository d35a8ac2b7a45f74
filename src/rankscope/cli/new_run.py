"""A new run's folder: where it may be written, with its manifest and a place for rings."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rankscope.base.manifest import Manifest, new_manifest, write_manifest
from rankscope.base.rundir import RunDir, shared_ring_folder
from rankscope.capture.config import Config


class NoPlace(Exception):
    """No folder can be written in which a run could be kept."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that has just been given its folder."""

    run: RunDir
    rings: Path | None
    """In shared memory; None: there is none, rings lie in the run's folder."""
    manifest: Manifest

    def make_ring_folders(self) -> None:
        """Make the folders for rings once more, where they are missing; a process whose ring has no place is not
        observed."""
        for folder in (self.run.rings, self.rings):
            if folder is not None:
                with suppress(OSError):
                    folder.mkdir(mode=0o700, exist_ok=True)


def create(wanted: Path, name: str | None, command: list[str], config: Config) -> NewRun:
    """Make the folder in `wanted`; elsewhere, with a line, where that cannot be written. Raises NoPlace."""
    id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    manifest = new_manifest(id, name, command, config.level, config.budget)
    failure = ""
    for place in (wanted, _state_folder(), Path(tempfile.gettempdir()) / f"rankscope-runs-{os.getuid()}"):
        run = RunDir(place / id)
        try:
            run.rings.mkdir(parents=True)
            write_manifest(run, manifest)
        except OSError as error:
            shutil.rmtree(run.root, ignore_errors=True)
            failure = failure or f"{wanted}: cannot be written ({error.strerror}); give another folder with --runs-dir"
            continue
        if failure:
            print(f"rankscope: {failure}; this run is kept in {run.root}", file=sys.stderr)
        return NewRun(run, _shared_rings(run), manifest)
    raise NoPlace(failure)


def _shared_rings(run: RunDir) -> Path | None:
    """The folder for rings in shared memory; None where it cannot be made."""
    folder = shared_ring_folder(run)
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    return folder


def _state_folder() -> Path:
    """Where programs keep what they want to find again; an unusable home is one of the things that may be wrong."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "rankscope" / "runs"

