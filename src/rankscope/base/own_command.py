"""Starting `rankscope` itself in another process, whatever the user's folder and environment hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rankscope.base.rundir import ENV_OFF

PACKAGE = str(Path(__file__).resolve().parents[2])


def own_command(*arguments: str) -> list[str]:
    """The command line of `rankscope ARGUMENTS...` in this Python.

    Not `-m`: it would put the working directory first on the path, and a `json.py` of the user's in place of Python's.
    """
    start = f"import sys; sys.path.pop(0); sys.path.append({PACKAGE!r}); from rankscope.cli.main import main"
    return [sys.executable, "-c", f"{start}; sys.exit(main())", *arguments]


def own_environment() -> dict[str, str]:
    """The environment of such a process: it is not to be observed."""
    return {**os.environ, ENV_OFF: "1"}
