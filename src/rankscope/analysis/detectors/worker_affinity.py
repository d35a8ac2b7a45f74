"""Finds loader workers that crowd on fewer CPUs than they could use."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis import data_waits, wording
from rankscope.analysis.detector import Detector
from rankscope.analysis.facts import Facts
from rankscope.base.finding import Evidence, Finding
from rankscope.records.loading import Fetch


class WorkerAffinity(Detector):
    """Loader workers share fewer cores than they could use.

    ## What it is
    A library or a launcher has narrowed the process's CPU affinity mask; workers inherit it and crowd on one core.

    ## What shows it
    The step waits for batches, the workers' affinity mask holds fewer CPUs than there are workers and fewer than the
    run may use.

    ## What else looks like it
    Too few workers or a slow transform (`slow-data-loading`): the mask is as wide as the machine.

    ## What to do
    Widen the mask in `worker_init_fn` (`os.sched_setaffinity(0, range(os.cpu_count()))`), or look for what narrows it:
    an imported library, `taskset`, `numactl`, `OMP_PROC_BIND`, `KMP_AFFINITY`.
    """

    name = "worker-affinity"
    needs = (Fetch,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        wait = data_waits.assess(facts)
        if wait.cause != self.name or wait.affinity is None:
            return
        who = wording.ranks(facts, wait.positions)
        place = wait.hot.place if wait.hot else None
        cpus = f"{wait.affinity} CPU{'s' if wait.affinity > 1 else ''}"
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{who}: {wait.workers} loader workers may only use {cpus} of {facts.cpus}",
            ranks=facts.numbers(wait.positions),
            all_ranks=len(wait.positions) == facts.size,
            phase="data",
            component="CPU affinity of the DataLoader workers",
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, wait.ns, wait.gain),
            evidence=(
                Evidence("CPUs that the workers may use", float(wait.affinity), "count", facts.numbers(wait.positions)),
                Evidence("CPUs that the run may use", float(facts.cpus), "count"),
                Evidence("workers of the loader", float(wait.workers), "count"),
                data_waits.waiting(facts, wait),
            ),
            next=(
                "widen the mask in worker_init_fn: os.sched_setaffinity(0, range(os.cpu_count()))",
                "find what narrows it: an imported library, taskset, numactl, OMP_PROC_BIND",
            ),
        )
