"""What CUDA memory snapshots say: what held the memory, what did not fit, what piles up, what is in pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.memory.digest import SnapshotDigest, digest
from rankscope.analysis.imported.memory.growth import growth
from rankscope.analysis.imported.memory.leaks import FEWEST_STEPS
from rankscope.analysis.imported.memory.sizes import size
from rankscope.analysis.imported.memory.verdicts import Verdict, verdict
from rankscope.analysis.wording import numbered
from rankscope.base.finding import Cost, Evidence, Finding, Location
from rankscope.records.imported.memory_snapshot import Frame, MemorySnapshot
from rankscope.records.imported.table import Table

ORDER = {"critical": 0, "warning": 1, "info": 2}


class MemorySnapshots(Examiner):
    reads = MemorySnapshot

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, MemorySnapshot)
        return digest(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        known = [d for d in digests if isinstance(d, SnapshotDigest)]
        by_rank: dict[tuple[int | None, int], list[SnapshotDigest]] = defaultdict(list)
        for d in known:
            by_rank[d.rank, d.device].append(d)
        # Without a rank, files are of unknown processes: only what one file says is said.
        found: dict[tuple[str, str], list[tuple[SnapshotDigest, Verdict]]] = defaultdict(list)
        for d in known:
            v = verdict(d)
            if v is not None:
                found[v.cause, v.place].append((d, v))
        findings = [_finding(same, world_size) for same in found.values()]
        grown = {(d.rank, d.device) for same in found.values() for d, v in same if v.cause != "out-of-memory"}
        for (rank, device), files in by_rank.items():
            if rank is not None and (rank, device) not in grown:
                findings += _grown(rank, files)
        findings.sort(key=lambda f: (ORDER[f.severity], -f.confidence))
        return Answer(
            findings=tuple(findings),
            examined=any(d.num_events for d in known),
            not_examined=tuple(_not_examined(known)),
            notes=tuple(f"{d.file.rsplit('/', 1)[-1]}: {line}" for d in known for line in describe(d)),
        )


def describe(d: SnapshotDigest) -> tuple[str, ...]:
    """What is in a snapshot, in a few lines: for reports that show healthy ones as well."""
    lines = [
        f"device {d.device}: {d.num_segments:,} segments, {d.num_blocks:,} blocks, {d.num_events:,} events, "
        f"{d.num_frames:,} lines of code",
        f"{size(d.held)} held of {size(d.reserved)} reserved at the end; at most {size(d.peak)} held, "
        f"{size(d.peak_reserved)} reserved",
    ]
    if d.categories:
        lines.append("at the peak: " + ", ".join(f"{name} {size(value)}" for name, value in d.categories))
    lines += [f"{size(h.bytes)} in {h.count:,} tensors: {h.place}" for h in d.at_peak[:10]]
    if d.layout is not None and d.layout.num_free:
        largest = size(d.layout.largest_free)
        lines.append(f"{size(d.layout.free)} free in {d.layout.num_free:,} pieces, largest {largest}")
    if d.num_steps:
        lines.append(f"{d.num_steps:,} steps, told by {d.steps_by}")
    return tuple(lines)


def _finding(same: list[tuple[SnapshotDigest, Verdict]], world_size: int | None) -> Finding:
    """One finding for all files that show the same fault in the same place."""
    same.sort(key=lambda one: (ORDER[one[1].severity], -one[0].peak))
    d, v = same[0]
    ranks = sorted({one.rank for one, _ in same if one.rank is not None})
    where = numbered(ranks) if ranks else d.file.rsplit("/", 1)[-1]
    several = f" (and {len(ranks) - 1} more ranks)" if len(ranks) > 1 else ""
    return Finding(
        cause=v.cause,
        severity=v.severity,
        confidence=v.confidence,
        title=f"{where}: {v.what}" if not several else f"{where}: {v.what} (rank {d.rank})",
        ranks=tuple(ranks),
        all_ranks=world_size is not None and len(ranks) == world_size > 1,
        phase=None,
        component=v.place,
        location=_location(v.location),
        first_step=v.step,
        last_step=v.step,
        cost=Cost(None, None, None),
        evidence=tuple(Evidence(e.text, e.value, e.unit, () if d.rank is None else (d.rank,)) for e in v.evidence),
        next=v.next,
    )


def _grown(rank: int, files: list[SnapshotDigest]) -> list[Finding]:
    found = growth(files)
    if found is None:
        return []
    n = len(found.bytes)
    return [
        Finding(
            cause="growing-cache",
            severity="warning",
            confidence=0.7,
            title=f"rank {rank}: {found.place} holds more in each of {n} snapshots, {size(found.added)} more in all "
            f"({found.counts[0]:,} to {found.counts[-1]:,} tensors)",
            ranks=(rank,),
            all_ranks=False,
            phase=None,
            component=found.place,
            location=_location(found.location),
            first_step=None,
            last_step=None,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("held in the first snapshot", found.bytes[0], "bytes", (rank,)),
                Evidence(f"held in the last of {n} snapshots", found.bytes[-1], "bytes", (rank,)),
                Evidence("tensors in the last one", found.counts[-1], "count", (rank,)),
                Evidence("lines that grow with every snapshot", found.lines, "count", (rank,)),
            ),
            next=(
                "find what keeps these tensors: a list, a dict, a metric, or the graph of a loss that is added up",
                "record a history (`torch.cuda.memory._record_memory_history()`) over six steps: it tells which step",
            ),
        )
    ]


def _not_examined(known: list[SnapshotDigest]) -> list[tuple[str, str, str]]:
    """What these files cannot say."""
    found = []
    empty = [d for d in known if d.is_empty]
    if empty:
        found.append(("out-of-memory", "a snapshot with segments or events", f"{_names(empty)}: nothing was recorded"))
    bare = [d for d in known if not d.num_events and not d.is_empty]
    if bare:
        found.append(
            (
                "out-of-memory",
                "a history of allocations (`torch.cuda.memory._record_memory_history()` before the run)",
                f"{_names(bare)}: only the state at the end was recorded",
            )
        )
    short = [d for d in known if d.num_events and d.num_steps <= FEWEST_STEPS]
    if short:
        found.append(
            (
                "growing-cache",
                f"a history of more than {FEWEST_STEPS} steps",
                f"{_names(short)}: {max(d.num_steps for d in short)} steps were told apart",
            )
        )
    return found


def _names(digests: list[SnapshotDigest]) -> str:
    names = [d.file.rsplit("/", 1)[-1] for d in digests]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _location(frame: Frame | None) -> Location | None:
    return Location(frame.file, frame.line, frame.function) if frame is not None else None
