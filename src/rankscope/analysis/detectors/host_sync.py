"""Finds ranks that read device values so often that the device runs dry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.base.finding import Evidence, Finding
from rankscope.records.host import DeviceWait


class HostSync(Detector):
    """The host reads values of the device so often that the device runs dry.

    ## What it is
    `.item()`, `.cpu()`, `print(tensor)`, `if tensor:` wait until the device has done all that was asked of it; after
    that it has nothing to do until the host has asked for more.

    ## What shows it
    The time in such reads per step. On a CPU there is no queue to drain: reading costs next to nothing and is never
    blamed.

    ## What else looks like it
    A device that is simply busy: one read per step then takes long, but costs nothing, because the host is ahead.

    ## What to do
    Read values at the logging interval, keep running sums on the device, read several at once.
    """

    name = "host-sync"
    needs = (DeviceWait,)

    def examine(self, facts: Facts) -> Iterator[Finding]:
        if not any(r.process.cuda_devices for r in facts.ranks):
            raise CannotExamine("no CUDA device in use; on a CPU there is no queue that a read would drain")
        rows = [facts.rows(DeviceWait, p) for p in range(facts.size)]
        counts = np.array([len(r) / max(1, len(facts.steps)) for r in rows])
        times = np.array([float(r["duration_ns"].sum()) for r in rows])
        # One read a step (the loss) lets the host run ahead again at once; many leave the device idle in between.
        positions = tuple(int(p) for p in np.flatnonzero((counts >= 2) & (times >= MATERIAL * facts.span_ns)))
        if not positions:
            return
        p = max(positions, key=lambda q: times[q])
        sites, at, n = np.unique(column(rows[p], DeviceWait, "site"), return_inverse=True, return_counts=True)
        best = int(np.argmax(np.bincount(at, rows[p]["duration_ns"].astype(float))))
        place = facts.place(p, int(sites[best]))
        share = float(times[p]) / facts.span_ns
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.7,
            title=f"{counts[p]:.0f} reads of device values a step take {wording.percent(share)}{wording.at(place)}",
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase=None,
            component=place.function if place else "reads of device values",
            location=wording.location(place),
            first_step=int(facts.steps[0]),
            last_step=int(facts.steps[-1]),
            cost=wording.cost(facts, float(times[p]), None),
            evidence=(
                Evidence("reads of device values a step", float(counts[p]), "count", facts.numbers(positions)),
                Evidence(
                    "time in them, per step", float(times[p]) / len(facts.steps) / 1e6, "ms", facts.numbers(positions)
                ),
                Evidence("of these from one line", float(n[best] / n.sum()), "share"),
            ),
            next=(
                "read values at the logging interval; keep running sums on the device",
                "read several values at once: torch.stack(values).tolist()",
            ),
        )
