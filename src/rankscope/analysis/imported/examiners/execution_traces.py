"""What PyTorch execution traces say: whether ranks that belong together call the same collectives."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.operators.comparison import Difference, differences
from rankscope.analysis.imported.operators.digest import TraceDigest, digest
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.imported.execution_trace import ExecutionTrace
from rankscope.records.imported.table import Table

CAUSES = "missing-collective, collective-order-mismatch, collective-shape-mismatch"
NEXT = {
    "missing-collective": ("look for a branch of the program that only some ranks take before that call",),
    "collective-order-mismatch": (
        "give all ranks of a group the same order of calls: build groups and register hooks in one order everywhere",
        "look for conditions on data or rank before that call",
    ),
    "collective-shape-mismatch": (
        "compare the tensors that the ranks bring: padding, the last batch, parameters that exist on some ranks only",
    ),
}


class ExecutionTraces(Examiner):
    reads = ExecutionTrace

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, ExecutionTrace)
        return digest(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        known = [d for d in digests if isinstance(d, TraceDigest)]
        ranked: dict[int, TraceDigest] = {}
        unused: dict[str, str] = {}
        lacking: list[tuple[str, str, str]] = []
        for d in sorted(known, key=lambda d: (-d.nodes, d.file)):
            if d.rank is None:
                continue
            if d.rank in ranked:
                unused[d.file] = f"rank {d.rank} is in {ranked[d.rank].file.rsplit('/', 1)[-1]} as well"
            else:
                ranked[d.rank] = d
        sizes = [d.world_size for d in known if d.world_size is not None]
        found: list[Difference] = []
        if len(set(sizes)) > 1:
            lacking.append((CAUSES, "traces of one job", f"their default groups have {sorted(set(sizes))} ranks"))
        elif len(ranked) < 2:
            why = "of one rank" if len(known) == 1 else "of ranks that are not known"
            lacking.append((CAUSES, "traces of two ranks of a group", f"{len(known)} trace(s) {why}"))
        else:
            found, compared = differences(list(ranked.values()))
            if not compared:
                lacking.append((CAUSES, "a group that two of the traces share", "no call could be matched"))
        lacking.append(("everything that costs time", "times", "execution traces hold operators without times"))
        return Answer(
            findings=tuple(_finding(d, len(ranked)) for d in found),
            world_size=max(sizes, default=None),
            examined=bool(found),
            not_examined=tuple(lacking),
            notes=tuple(f"{d.file.rsplit('/', 1)[-1]}: {line}" for d in known for line in d.lines()),
            unused=unused,
        )


def _finding(d: Difference, num_ranks: int) -> Finding:
    group = d.group.description or d.group.name
    named = f"group {d.group.name}" + (f" ({group})" if group != d.group.name else "")
    does = "; ".join(f"{numbered(ranks)} {'calls' if len(ranks) == 1 else 'call'} {what}" for what, ranks in d.said[:3])
    return Finding(
        cause=d.cause,
        severity="critical",
        confidence=0.8,
        title=f"{named}, {d.where}: {does}",
        ranks=d.ranks,
        all_ranks=d.all_ranks and len(d.ranks) == num_ranks,
        phase="communication",
        component=named,
        location=None,
        first_step=d.step if d.step >= 0 else None,
        last_step=None,
        cost=Cost(None, None, None),
        evidence=(
            *(Evidence(f"ranks that call {what} at {d.where}", len(who), "count", who) for what, who in d.said[:4]),
            Evidence("calls of this group that differ", d.count, "count"),
        ),
        next=NEXT[d.cause],
    )
