"""Finds runs whose compute threads do not fit on the cores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL_EVERYWHERE, CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.host_time import host_time, oversubscribed, threads_wanted
from rankscope.base.finding import Evidence, Finding
from rankscope.records.host import Counter


class ThreadOversubscription(Detector):
    """The run's processes start more threads than there are cores, and these take turns.

    ## What it is
    Each process starts as many compute threads as the machine has cores; with several processes they wait for each
    other at every parallel region, spinning.

    ## What shows it
    Threads times processes exceed the cores, and the kernel counts much time in which threads of the ranks are ready
    and have no core, on all ranks.

    ## What else looks like it
    A neighbour (`cpu-contention`): the run's own threads would fit.

    ## What to do
    `torch.set_num_threads(cores // processes)` or `OMP_NUM_THREADS`; `torchrun` sets it to 1 only where it is unset.
    """

    name = "thread-oversubscription"
    needs = (Counter,)
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not facts.cpus:
            raise CannotExamine("the number of CPUs is not known")
        if not oversubscribed(facts):
            return
        times = [host_time(facts, p) for p in range(facts.size)]
        if any(t.all_threads_delay is None or t.run_delay is None for t in times):
            raise CannotExamine("the kernel's run-queue times were not read in the window (run too short, or no /proc)")
        waiting = np.array([t.all_threads_delay or 0.0 for t in times])
        if waiting.min() < 2 * MATERIAL_EVERYWHERE:
            return
        everyone = tuple(range(facts.size))
        # Of the time that its threads want a core, what they wait for one is what fewer threads would not lose.
        busy = np.array([t.cpu or 0.0 for t in times])
        share = float((waiting / np.maximum(1e-9, waiting + busy)).max())
        threads = threads_wanted(facts)
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.9,
            title=f"{threads} compute threads of {facts.size} process{'es' if facts.size > 1 else ''} share "
            f"{facts.cpus} CPUs",
            ranks=facts.numbers(everyone),
            all_ranks=True,
            phase=None,
            component=f"{facts.ranks[0].process.torch_threads} intra-op threads a process (OMP_NUM_THREADS)",
            location=None,
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            # What fewer threads gain is not known: what they waste (spinning, switching) looks like work.
            cost=wording.cost(facts, share * facts.span_ns, None),
            evidence=(
                Evidence("compute threads of all ranks", float(threads), "count"),
                Evidence("CPUs that the run may use", float(facts.cpus), "count"),
                *(
                    Evidence(
                        f"rank {facts.ranks[p].rank}: threads ready without a CPU, on average",
                        float(waiting[p]),
                        "count",
                        (facts.ranks[p].rank,),
                    )
                    for p in everyone
                ),
            ),
            next=(
                f"OMP_NUM_THREADS={max(1, facts.cpus // max(1, facts.size))} in each process",
                "count loader workers and other processes of the node, too",
            ),
        )
