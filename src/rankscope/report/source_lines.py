"""Lines of the user's source: the copy kept with the run, else the file itself."""

from __future__ import annotations

import hashlib
from pathlib import Path


def read_source(file: str, folder: Path) -> list[str] | None:
    """All lines of a source file, from its copy in `folder` where there is one; None where it cannot be read."""
    name = f"{hashlib.sha256(file.encode()).hexdigest()[:16]}-{Path(file).name}"
    for path in (folder / name, Path(file)):
        try:
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
    return None
