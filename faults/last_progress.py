"""Prints when the first rank of a run came to a stand, in seconds of the node's monotonic clock; nothing where unknown.

In a process of its own, because the store's engine holds one folder for as long as the process lives.
Example: python faults/last_progress.py rankscope-runs/20260101-120000-ab12cd
"""

from __future__ import annotations

import sys
from pathlib import Path

from rankscope.analysis.facts import Facts
from rankscope.analysis.standing import standing
from rankscope.analysis.tables import load
from rankscope.base.rundir import RunDir
from rankscope.cli.session import open_when_free


def main(folder: Path) -> None:
    with open_when_free(RunDir(folder.absolute())) as store:
        facts = Facts(load(store))
    since = [standing(facts, position).since_ns for position in range(facts.size)]
    if any(since):
        print(min(filter(None, since)) / 1e9)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
