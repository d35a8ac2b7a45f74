"""Which rank a file is of, from its name alone."""

from __future__ import annotations

import re

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
    if named:
        return int(named[-1])
    last = _LAST.search(stem)
    return int(last[1]) if last and len(last[1]) <= 6 else None
