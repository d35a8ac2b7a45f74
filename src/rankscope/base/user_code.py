"""Which files are the user's own code, told from the path alone: one answer while recording and when analysing."""

from __future__ import annotations

OURS = ("/rankscope/capture/", "/rankscope/base/", "/rankscope/records/")
"""What of rankscope runs in the user's process."""


def is_library(file: str, folders: tuple[str, ...] = ()) -> bool:
    """Whether a file belongs to Python, an installed package, torch or rankscope.

    `folders`: where torch and Python lie in the process that ran it; needed where that is no usual place. What has no
    file (`<string>`, `<frozen importlib>`, code that torch made) cannot be shown to anybody and is no code of the
    user's either.
    """
    return (
        not file
        or file[0] == "<"
        or "/site-packages/" in file
        or "/dist-packages/" in file
        or any(_is_version(rest) for rest in file.replace("/lib64/", "/lib/").split("/lib/python")[1:])
        or any(own in file for own in OURS)
        or any(_is_below(file, folder) for folder in folders)
    )


def is_torch(file: str, folder: str = "") -> bool:
    """Whether a file belongs to torch, which lies in `folder` (empty: not known, then among the installed packages)."""
    return _is_below(file, folder) if folder else "-packages/torch/" in file


def _is_below(file: str, folder: str) -> bool:
    return bool(folder) and file.startswith(folder if folder.endswith("/") else folder + "/")


def _is_version(rest: str) -> bool:
    """Whether a path goes on as Python's library does: `3.11/threading.py`, `3.13t/os.py`."""
    version, slash, _ = rest.partition("/")
    return bool(slash) and version.removesuffix("t").replace(".", "").isdigit()
