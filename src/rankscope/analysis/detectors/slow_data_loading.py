"""Finds ranks that wait for code that makes batches."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import data_waits, wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.losses import makes_its_own_data, rolls_out
from rankscope.analysis.stacks import Place
from rankscope.base.finding import Evidence, Finding
from rankscope.records.training import Step


class SlowDataLoading(Detector):
    """The step waits for its next batch because the code that makes batches is too slow for it.

    ## What it is
    Either the rank makes its batches itself (`num_workers=0`, or code in the loop) and cannot train meanwhile, or the
    loader's workers together make fewer batches than the step uses up.

    ## What shows it
    Time in `next()` of the loader that the step cannot do without (found by replaying the run without it), the
    workers' own time per batch, and the stacks taken inside the dataset: they name the function and the line.

    ## What else looks like it
    A CPU that others use (`cpu-contention`), workers pinned to one core (`worker-affinity`), waits for a disk or a
    network (`slow-storage`), workers that are started again each epoch (`loader-worker-restart`).

    ## What to do
    Move work out of `__getitem__` (do it once, cache it, do it in batches), raise `num_workers`, set
    `persistent_workers=True` and `pin_memory=True`.
    """

    name = "slow-data-loading"
    needs = (Step,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        wait = data_waits.assess(facts)
        if wait.cause != self.name:
            return
        place = wait.hot.place if wait.hot else None
        evidence = [data_waits.waiting(facts, wait)]
        if wait.fetch_ns:
            made = "a worker takes for one batch" if wait.workers else "making one batch takes, on the rank itself"
            evidence.append(Evidence(f"{made} (median)", wait.fetch_ns / 1e6, "ms"))
        if wait.workers:
            evidence.append(Evidence("workers of the loader", float(wait.workers), "count"))
        if wait.cpu_share is not None:
            evidence.append(Evidence("of that time on a CPU", wait.cpu_share, "share"))
        if wait.hot is not None:
            text = f"of its stack samples, {wait.hot.samples} in {wait.hot.place.short}"
            evidence.append(Evidence(text, wait.hot.share, "share"))
        component = wait.hot.component if wait.hot else f"{wait.dataset}.__getitem__" if wait.dataset else None
        advice = (
            "give the loader workers (num_workers is 0): it makes batches while the model trains"
            if not wait.workers and wait.dataset
            else "raise num_workers, as far as there are cores"
            if wait.workers
            else "make batches ahead in a DataLoader with workers"
        )
        yield Finding(
            cause=self.name,
            # Who acts to have something to learn from (reinforcement learning) has no batches without that.
            severity="info" if not wait.dataset and (makes_its_own_data(facts) or rolls_out(facts)) else "warning",
            confidence=0.9 if place is not None else 0.75,
            title=_title(facts, wait, place),
            ranks=facts.numbers(wait.positions),
            all_ranks=len(wait.positions) == facts.size,
            phase="data",
            component=component,
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, wait.ns, wait.gain_with_cpus),
            evidence=tuple(evidence),
            next=(
                f"make {place.short} faster: precompute, cache or vectorise it" if place else "profile the dataset",
                advice,
            ),
        )


def _title(facts: Facts, wait: data_waits.DataWait, place: Place | None) -> str:
    per_step = f"{wording.ms(wait.mean_wait_ns)} a step"
    if wait.dataset or wait.workers:
        return f"{wording.waits(facts, wait.positions)} {per_step} for batches{wording.at(place)}"
    who = wording.ranks(facts, wait.positions)
    return f"{who}: {per_step} {'goes' if len(wait.positions) == 1 else 'go'} into making batches{wording.at(place)}"
