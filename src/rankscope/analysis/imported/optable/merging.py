"""One table of all files: parts of a job are put together, what is there twice is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.imported.optable.digest import TableDigest


def merged(digests: Sequence[TableDigest]) -> tuple[TableDigest, dict[str, str]]:
    """(the rows of all files that go together, file -> why it was left out).

    A job may lie in a file for each rank or each range of steps. A file with ranks and steps that another one has
    already tells of the same job again (a table and the timeline drawn from it), or of another job; the one with most
    rows is kept, and of equal ones that with the longer operations: drawn timelines leave waits out.
    """
    best = sorted(digests, key=lambda d: (-len(d), -int(d.duration_ns.sum()), d.file))
    taken, cells = [best[0]], [_cells(best[0])]
    unused: dict[str, str] = {}
    for d in best[1:]:
        own = _cells(d)
        same = next((t for t, theirs in zip(taken, cells, strict=True) if np.isin(own, theirs).any()), None)
        if same is not None:
            unused[d.file] = f"it has ranks and steps that {_short(same)} has as well"
        elif not any(np.isin(d.steps, t.steps).any() or np.isin(d.ranks, t.ranks).any() for t in taken):
            unused[d.file] = f"no rank or step of it is in {_short(best[0])}: another job"
        else:
            taken.append(d)
            cells.append(own)
    return _joined(taken), unused


def _short(d: TableDigest) -> str:
    return d.file.rsplit("/", 1)[-1]


def _cells(d: TableDigest) -> NDArray[np.int64]:
    """Each pair of rank and step once, as one number."""
    return np.unique(d.steps * (1 << 24) + d.ranks)


def _joined(parts: Sequence[TableDigest]) -> TableDigest:
    if len(parts) == 1:
        return parts[0]
    names = {name: number for number, name in enumerate(dict.fromkeys(name for part in parts for name in part.names))}
    kinds = np.concatenate([np.array([names[n] for n in part.names], np.int16)[part.kinds] for part in parts])
    steps, ranks = np.concatenate([part.steps for part in parts]), np.concatenate([part.ranks for part in parts])
    start_ns = np.concatenate([part.start_ns for part in parts])
    order = np.lexsort((start_ns, kinds, ranks, steps))
    return replace(
        parts[0],
        ranks=ranks[order],
        replicas=np.concatenate([part.replicas for part in parts])[order],
        stages=np.concatenate([part.stages for part in parts])[order],
        steps=steps[order],
        kinds=kinds[order],
        start_ns=start_ns[order],
        duration_ns=np.concatenate([part.duration_ns for part in parts])[order],
        orders=np.concatenate([part.orders for part in parts])[order],
        chunks=np.concatenate([part.chunks for part in parts])[order],
        micro_batches=np.concatenate([part.micro_batches for part in parts])[order],
        names=tuple(names),
        dropped=sum(part.dropped for part in parts),
        repeated=sum(part.repeated for part in parts),
    )
