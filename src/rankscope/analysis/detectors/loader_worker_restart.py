"""Finds loaders whose workers start anew for each epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import data_waits, wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.base.finding import Evidence, Finding
from rankscope.records.loading import LoaderStart, WorkerStart


class LoaderWorkerRestart(Detector):
    """Loader workers, and with them the dataset, are built anew each epoch.

    ## What it is
    Without `persistent_workers` each new iterator starts its worker processes: imports, a copy of the dataset, files
    opened again.

    ## What shows it
    Most of the waiting for batches is the first batch of an iterator with new workers; the workers' process ids change
    from epoch to epoch, and they take long until their first fetch.

    ## What else looks like it
    A slow dataset (`slow-data-loading`) waits at every batch.

    ## What to do
    `DataLoader(..., persistent_workers=True)`; create the loader once, outside the epoch loop; keep `worker_init_fn`
    and the dataset's `__init__` cheap.
    """

    name = "loader-worker-restart"
    needs = (LoaderStart,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        wait = data_waits.assess(facts)
        if wait.cause != self.name:
            return
        who = wording.ranks(facts, wait.positions)
        pids = {pid for p in wait.positions for pid in facts.ranks[p].workers}
        starts = facts.tables.of(WorkerStart)
        starts = starts[np.isin(starts["process"], list(pids))]
        first = facts.rows(LoaderStart, wait.positions[0])
        site = column(first, LoaderStart, "site")
        place = facts.place(wait.positions[0], int(site[-1])) if len(site) else None
        loaders = column(first, LoaderStart, "loader")
        anew = len(np.unique(loaders)) > len(loaders) / 2  # another loader each epoch: its workers cannot persist
        advice = ("set persistent_workers=True on the DataLoader", "create the loader once, outside the epoch loop")
        what = "loader workers start" if wait.workers else "the dataset is built"
        per_restart = wait.ns / max(1, wait.iterators)
        evidence = [
            Evidence("of the waiting for batches is the start of new workers", wait.restart_share, "share"),
            Evidence(
                "iterators that started their workers anew",
                float(wait.iterators),
                "count",
                facts.numbers(wait.positions),
            ),
        ]
        if pids:
            evidence.append(Evidence("different worker processes", float(len(pids)), "count"))
        if len(starts):
            evidence.append(
                Evidence(
                    "a worker takes until its first fetch (median)", float(np.median(starts["duration_ns"])) / 1e6, "ms"
                )
            )
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{who}: {what} anew each epoch, {wording.ms(per_restart)} a time{wording.at(place)}",
            ranks=facts.numbers(wait.positions),
            all_ranks=len(wait.positions) == facts.size,
            phase="data",
            component=("DataLoader workers of " if wait.workers else "DataLoader of ")
            + (wait.dataset or "the dataset"),
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, wait.ns, wait.gain),
            evidence=tuple(evidence),
            next=advice if wait.workers and not anew else advice[::-1],
        )
