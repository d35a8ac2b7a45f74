"""Finds loaders that wait for a disk or a network."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import data_waits, wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.loading import Fetch


class SlowStorage(Detector):
    """The loader waits for a disk or a network, not for a CPU.

    ## What it is
    Samples come from somewhere slow: a cold page cache, a network file system, an object store.

    ## What shows it
    The step waits for batches while the fetches use little CPU time, and the stacks show a function that reads; or the
    fetches are several times slower at first than later, when what they read is cached.

    ## What else looks like it
    A transform that computes (`slow-data-loading`): it uses CPU time.

    ## What to do
    Copy the data to a local disk first, pack many small files into few large ones, raise `num_workers` and
    `prefetch_factor` (waiting needs no core), or cache samples after the first read.
    """

    name = "slow-storage"
    needs = (Fetch,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        wait = data_waits.assess(facts)
        if wait.cause != self.name:
            return
        place = wait.hot.place if wait.hot else None
        evidence = [data_waits.waiting(facts, wait)]
        if wait.cpu_share is not None:
            evidence.append(Evidence("of the time of a fetch on a CPU; the rest it waits", wait.cpu_share, "share"))
        if wait.first_touch is not None and wait.first_touch > data_waits.CACHED_LATER:
            evidence.append(
                Evidence("fetches at first against fetches later, when data is cached", wait.first_touch, "x")
            )
        if wait.hot is not None:
            evidence.append(
                Evidence(f"stack samples in {wait.hot.place.short} that found it waiting", wait.hot.blocked, "share")
            )
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.85,
            title=f"{wording.waits(facts, wait.positions)} {wording.ms(wait.mean_wait_ns)} a step for storage"
            f"{wording.at(place)}",
            ranks=facts.numbers(wait.positions),
            all_ranks=len(wait.positions) == facts.size,
            phase="data",
            component=wait.hot.component if wait.hot else wait.dataset or None,
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, wait.ns, wait.gain),
            evidence=tuple(evidence),
            next=(
                "stage the data on a local disk, or keep samples after their first read",
                "raise num_workers and prefetch_factor: waiting for storage needs no core",
            ),
        )
