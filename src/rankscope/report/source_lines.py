"""Lines of the user's source: the copy kept with the run, else the file itself."""

from __future__ import annotations

from pathlib import Path

from rankscope.base.rundir import kept_source


def read_source(file: str, folder: Path) -> list[str] | None:
    """All lines of a source file, from its copy in `folder` where there is one; None where it cannot be read."""
    for path in (kept_source(folder, file), Path(file)):
        try:
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
    return None
