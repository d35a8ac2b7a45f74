"""The tensors of one batch together, and how many samples the loader was asked for."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.batch_contents import Seen, batch_tensors
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.batch_contents import FROM_LOADER
from rankscope.records.loading import Fetch


def batches(facts: Facts) -> tuple[tuple[Seen, ...], ...]:
    """The batches that DataLoaders gave and that were looked at: the tensors of each."""
    return facts.once(_batches)


def _batches(facts: Facts) -> tuple[tuple[Seen, ...], ...]:
    found: dict[tuple[int, int], list[Seen]] = {}
    for seen in batch_tensors(facts):
        if seen.origin == FROM_LOADER:
            found.setdefault((seen.position, seen.time_ns), []).append(seen)
    return tuple(tuple(batch) for batch in found.values())


def asked_for(facts: Facts, one: Seen) -> int | None:
    """Samples in a usual fetch of the loader that gave a batch; None where it is not known.

    The newest batch of a loader was fetched by the rank just before, or by a worker some batches earlier: the number
    that most fetches of the same data set have is its batch size.
    """
    sizes: dict[tuple[int, str], int] = facts.once(_usual_sizes)
    return sizes.get((one.position, one.source))


def _usual_sizes(facts: Facts) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], list[int]] = {}
    for position, rank in enumerate(facts.ranks):
        for pid in (rank.pid, *rank.workers):
            rows = facts.tables.of(Fetch)
            rows = rows[rows["process"] == pid]
            samples = column(rows, Fetch, "samples").tolist()
            for name, many in zip(rows["name"].tolist(), samples, strict=True):
                found.setdefault((position, facts.tables.name(pid, int(name))), []).append(int(many))
    return {key: int(np.median(many)) for key, many in found.items() if len(set(many)) <= 2 or len(many) > 4}
