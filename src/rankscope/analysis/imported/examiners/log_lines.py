"""What logs say of a failure: who began it, and in which line."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.logs.digest import LogDigest, digest, together
from rankscope.analysis.imported.logs.findings import findings
from rankscope.analysis.imported.logs.judged import judged
from rankscope.analysis.imported.logs.short_curves import short_spike
from rankscope.analysis.imported.logs.timeouts import timeout
from rankscope.records.imported import log_lines
from rankscope.records.imported.table import Table


class LogLines(Examiner):
    reads = log_lines.LogLines

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, log_lines.LogLines)
        return digest(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        logs = [d for d in digests if isinstance(d, LogDigest)]
        job = together(logs, world_size)
        found = findings(job, judged(job), timeout(job))
        found += [spike for log in logs if (spike := short_spike(log)) is not None]
        dropped = sum(d.num_dropped for d in logs)
        why = f"{dropped:,} lines repeat others and were only counted"
        missing = [("logs", "a log without repetitions", why)] if dropped else []
        return Answer(
            findings=tuple(found),
            world_size=job.world_size,
            steps=None,
            # A log without an error says nothing of speed, and of a hang nothing at all.
            examined=bool(found) or any(d.num_steps for d in logs),
            not_examined=tuple(missing),
        )
