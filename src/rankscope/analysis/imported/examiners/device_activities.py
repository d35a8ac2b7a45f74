"""What exports of Nsight Systems say: how each GPU's time divides, and what keeps it from computing."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.imported.activities.digest import ActivityDigest, digest
from rankscope.analysis.imported.activities.findings import FEWEST, Place, enough, findings, places
from rankscope.analysis.imported.examiner import Answer, Digest, Examiner, Shares
from rankscope.analysis.wording import ms, percent
from rankscope.records.imported.device_activity import DeviceActivity
from rankscope.records.imported.table import Table

IDLE_CAUSES = "launch-bound, host-sync, slow-data-loading"


class DeviceActivities(Examiner):
    reads = DeviceActivity

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, DeviceActivity)
        return digest(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        known = places([d for d in digests if isinstance(d, ActivityDigest)])
        return Answer(
            findings=tuple(findings(known)),
            shares=tuple(_shares(p) for p in known if p.gpu.window_ns > 0),
            examined=any(enough(p) for p in known),
            not_examined=tuple(_not_examined(known)),
            notes=tuple(line for p in known for line in _lines(p)),
        )


def _shares(p: Place) -> Shares:
    gpu = p.gpu
    window = gpu.window_ns
    return Shares(
        file=p.file,
        rank=p.rank,
        window_us=window / 1e3,
        compute=gpu.compute_ns / window,
        exposed_communication=gpu.exposed_communication_ns / window,
        exposed_memory=gpu.exposed_memory_ns / window,
        idle=gpu.idle_ns / window,
        hidden_communication=(gpu.communication_ns - gpu.exposed_communication_ns) / gpu.communication_ns
        if gpu.communication_ns
        else None,
    )


def _lines(p: Place) -> list[str]:
    """What ran on a GPU."""
    gpu = p.gpu
    where = f"{p.file.rsplit('/', 1)[-1]}, GPU {gpu.number}" + (f" ({gpu.name})" if gpu.name else "")
    lines = [
        f"{where}: {gpu.kernel_calls:,} kernels run {ms(gpu.kernel_ns)} of {ms(gpu.window_ns)}, "
        f"nothing runs {percent(gpu.idle_ns / max(1, gpu.window_ns))}"
    ]
    lines += [f"{where}: {ms(row.ns)} in {row.calls:,} calls of {row.name}" for row in gpu.kernels[:3]]
    lines += [f"{where}: {ms(c.ns)} in {c.copies:,} copies {c.what}, {c.bytes / 1e6:,.1f} MB" for c in gpu.copies[:3]]
    return lines


def _not_examined(known: list[Place]) -> list[tuple[str, str, str]]:
    lacking = []
    for p in known:
        where = f"GPU {p.gpu.number} of {p.file.rsplit('/', 1)[-1]}"
        if not enough(p):
            lacking.append((IDLE_CAUSES, f"{FEWEST} activities", f"{where} has {p.gpu.activities}: no load to judge"))
        elif p.gpu.waiting is None:
            lacking.append((IDLE_CAUSES, "calls of the host", f"none in the file belongs to what ran on {where}"))
    return lacking
