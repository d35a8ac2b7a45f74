"""Which rank a file is of, from its name alone."""

from __future__ import annotations

import re

MOST_DIGITS = 6
"""Of a rank: a longer number is a time, a process or a mistake."""
_GLOBAL = re.compile(r"(?:^|[^a-z])global[_\-.]?rank[_\-.]?(\d+)", re.IGNORECASE)
_NAMED = re.compile(r"(?:^|(?<!local)[^a-z])(?:rank|worker)[_\-.]?(\d+)", re.IGNORECASE)
_LAST = re.compile(r"(?:^|[_\-.])(\d+)$")
_ENDINGS = re.compile(
    r"(\.(json|gz|tar|tgz|zip|pt|trace|pickle|pkl|log|txt|out|err|sqlite|parquet|bz2|xz|zst))+$", re.IGNORECASE
)


def file_rank(name: str) -> int | None:
    """`trace-rank3.json.gz`, `worker2_step_12`, `_dump_14`, `nccl_trace_rank_7`: 3, 2, 14, 7; None where no number
    stands for a rank."""
    stem = _ENDINGS.sub("", name.rsplit("/", 1)[-1].rsplit(":", 1)[-1])
    named = _GLOBAL.findall(stem) or _NAMED.findall(stem)
    last = _LAST.search(stem)
    digits = named[-1] if named else last[1] if last else ""
    return int(digits) if 0 < len(digits) <= MOST_DIGITS else None
