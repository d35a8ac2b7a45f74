"""Copies of the user's source files that samples and call-sites point to, so that a report can quote them later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankscope.base.rundir import kept_source
from rankscope.base.user_code import is_library

MAX_FILES = 200
MAX_BYTES = 1 << 20


def keep_sources(folder: Path, places: Any, libraries: tuple[str, ...] = ()) -> int:
    """Copy every file named in `places` (a table of `file:line:function` texts) that is not a library's; how many.

    A copy that is there already stays. `libraries`: the `library_folders` of the run's processes.
    """
    files: set[str] = set()
    for text in places.column(0).to_pylist():
        file = text.rpartition(":")[0].rpartition(":")[0]
        if file.endswith(".py") and not is_library(file, libraries):
            files.add(file)
    kept = 0
    for file in sorted(files)[:MAX_FILES]:
        path = Path(file)
        try:
            copy = kept_source(folder, file)
            if not copy.exists() and path.is_file() and path.stat().st_size <= MAX_BYTES:
                folder.mkdir(exist_ok=True)
                copy.write_bytes(path.read_bytes())
                kept += 1
        except OSError:
            continue
    return kept
