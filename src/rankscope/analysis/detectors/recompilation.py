"""Finds functions that torch.compile compiles again and again."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import MATERIAL, Detector, worst_ranks
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import parse_place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.host import Compile

FEWEST = 2
"""Compilations again of one function; one may be the change from training to evaluation."""


class Recompilation(Detector):
    """Compiled code is compiled again and again, because a guard fails.

    ## What it is
    `torch.compile` specialises on what it saw: shapes, Python numbers, modes, objects. Each new value compiles anew,
    up to a limit; after that the function runs uncompiled.

    ## What shows it
    Several compilations of the same function after its first one, their time, and the guard that failed each time.

    ## What else looks like it
    The first compilation, which every run has; a single one more for evaluation mode.

    ## What to do
    `torch.compile(dynamic=True)` or `torch._dynamo.mark_dynamic`, pad inputs to a few sizes, keep changing Python
    values out of compiled functions.
    """

    name = "recompilation"
    needs = (Compile,)
    any_length = True
    inference = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        worst: dict[str, list[tuple[int, np.void]]] = {}
        for p in range(facts.size):
            seen: Counted[int] = Counted()
            for row in facts.rows(Compile, p, window=False):
                id = int(row["name"])
                seen[id] += 1
                if seen[id] > 1:
                    worst.setdefault(facts.tables.name(facts.ranks[p].pid, id), []).append((p, row))
        if not worst or not facts.all_steps:
            return
        name = max(worst, key=lambda n: sum(int(row["duration_ns"]) for _, row in worst[n]))
        rows = worst[name]
        times = np.zeros(facts.size)
        counts = np.zeros(facts.size, int)
        for p, row in rows:
            times[p] += int(row["duration_ns"])
            counts[p] += 1
        limit = bool(column(np.array([row for _, row in rows]), Compile, "limit").any())
        compiles = [facts.rows(Compile, p, window=False) for p in {p for p, _ in rows}]
        first = min(int(c["time_ns"].min()) for c in compiles)
        last = max(int((c["time_ns"] + c["duration_ns"]).max()) for c in compiles)
        run_ns = max(1, max(facts.finished_ns, last) - first)
        share = min(1.0, float(times.max()) / run_ns)  # one compilation may run inside another
        if counts.max() < FEWEST or (share < MATERIAL and not limit):
            return
        positions = worst_ranks(counts)
        place = parse_place(name) if name.count(":") >= 2 else None
        reasons: Counted[str] = Counted()
        for p, row in rows:
            text = facts.tables.name(facts.ranks[p].pid, int(column(np.array([row]), Compile, "reason")[0]))
            if text:
                reasons[_guard(text)] += 1
        guard = reasons.most_common(1)[0][0] if reasons else "a guard"
        steps = [int(row["step"]) for _, row in rows]
        ms_per_step = float(times.max()) / 1e6 / facts.all_steps
        yield Finding(
            cause=self.name,
            severity="warning",
            confidence=0.95,
            title=f"{place.short if place else name} is compiled {counts.max()} times again, "
            f"{wording.percent(share)} of the run: {guard}"[:200],
            ranks=facts.numbers(positions),
            all_ranks=len(positions) == facts.size,
            phase="forward",
            component=f"torch.compile: {guard}"[:200],
            location=wording.location(place),
            first_step=min(steps),
            last_step=max(steps),
            cost=Cost(ms_per_step, share, share),
            evidence=(
                Evidence(
                    "compilations of this function after its first",
                    float(counts.max()),
                    "count",
                    facts.numbers(positions),
                ),
                Evidence("time in them", float(times.max()) / 1e6, "ms", facts.numbers(positions)),
                *(
                    Evidence(f"times this guard failed: {text}"[:200], float(n), "count")
                    for text, n in reasons.most_common(2)
                ),
                *(
                    (Evidence("the recompile limit was reached: from then on it runs uncompiled", 1.0, "count"),)
                    if limit
                    else ()
                ),
            ),
            next=(
                "torch.compile(..., dynamic=True), or mark the changing dimension with torch._dynamo.mark_dynamic",
                "pad inputs to a few fixed sizes; keep changing Python values out of the compiled function",
            ),
        )


def _guard(text: str) -> str:
    """The failing guard without what changes from time to time: its first line, after the last number of the frame."""
    lines = [line.strip(" -\t") for line in text.splitlines() if line.strip()]
    chosen = next(
        (line for line in lines if "size mismatch" in line or "==" in line or "expected" in line),
        lines[-1] if lines else "",
    )
    head, _, tail = chosen.partition(": ")
    best = tail if head.replace("/", "").isdigit() else chosen
    return best.split(". expected")[0].split(", actual")[0][:120]
