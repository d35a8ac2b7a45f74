"""Which rank a file is of, from its name and that of its folder alone."""

from __future__ import annotations

import re

MOST_DIGITS = 6
"""Of a rank: a longer number is a time, a process or a mistake."""
_GLOBAL = re.compile(r"(?:^|[^a-z])global[_\-.]?rank[_\-.]?(\d+)", re.IGNORECASE)
_NAMED = re.compile(r"(?:^|(?<!local)[^a-z])(?:rank|worker)[_\-.]?(\d+)", re.IGNORECASE)
_FOLDER = re.compile(r"(?:global[_\-.]?)?rank[_\-.]?(\d+)", re.IGNORECASE)
_LAST = re.compile(r"(?:^|[_\-.])(\d+)$")
_ENDINGS = re.compile(
    r"(\.(json|gz|tar|tgz|zip|pt|trace|pickle|pkl|log|txt|out|err|sqlite|parquet|bz2|xz|zst))+$", re.IGNORECASE
)


def file_rank(path: str) -> int | None:
    """As `named_rank`, or the last number of a name that has no other word for it: of `_dump_14`, 14."""
    named = named_rank(path)
    last = _LAST.search(_parts(path)[1])
    return named if named is not None or last is None else _number(last[1])


def named_rank(path: str) -> int | None:
    """`trace-rank3.json.gz`, `worker2_step_12`, `rank_5/trace.json`: 3, 2, 5; None where nothing is called a rank."""
    folder, stem = _parts(path)
    named = _GLOBAL.findall(stem) or _NAMED.findall(stem)
    above = _FOLDER.fullmatch(folder)
    return _number(named[-1] if named else above[1] if above else "")


def _parts(path: str) -> tuple[str, str]:
    """(folder, name without endings) of a file, or of a member of an archive."""
    *_, folder, name = "", *path.replace(":", "/").split("/")
    return folder, _ENDINGS.sub("", name)


def _number(digits: str) -> int | None:
    return int(digits) if 0 < len(digits) <= MOST_DIGITS else None
