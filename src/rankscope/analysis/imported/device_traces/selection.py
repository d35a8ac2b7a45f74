"""Which traces belong together: one of each rank, all of one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rankscope.analysis.imported.device_traces.digest import TraceDigest

APART_NS: Final = 3600 * 10**9
"""Windows of one capture lie within seconds; clocks of machines that differ by an hour would break the job itself."""


def selected(digests: Sequence[TraceDigest]) -> tuple[list[TraceDigest], dict[str, str]]:
    """Those to be used, by rank, and why each other file is not. Traces without a rank are never compared, so all
    stay."""
    unused: dict[str, str] = {}
    ranked = [digest for digest in digests if digest.rank is not None]
    ranked = _one_job_by_size(ranked, unused)
    ranked = _one_job_by_time(ranked, unused)
    ranked = _one_a_rank(ranked, unused)
    kept = sorted(ranked, key=lambda digest: digest.rank or 0)
    return [*kept, *(digest for digest in digests if digest.rank is None)], unused


def _one_job_by_size(digests: list[TraceDigest], unused: dict[str, str]) -> list[TraceDigest]:
    sizes = Counter(digest.world_size for digest in digests if digest.world_size is not None)
    if len(sizes) < 2:
        return digests
    (size, count), *_ = sizes.most_common()
    for digest in digests:
        if digest.world_size not in (None, size):
            unused[digest.file] = (
                f"is of another job: its world size is {digest.world_size}, that of {count} other"
                f"{'s' if count > 1 else ''} {size}"
            )
    return [digest for digest in digests if digest.file not in unused]


def _one_job_by_time(digests: list[TraceDigest], unused: dict[str, str]) -> list[TraceDigest]:
    timed = sorted((digest for digest in digests if digest.wall_clock), key=lambda digest: digest.first_ns)
    clusters: list[list[TraceDigest]] = []
    for digest in timed:
        if clusters and digest.first_ns - max(one.last_ns for one in clusters[-1]) < APART_NS:
            clusters[-1].append(digest)
        else:
            clusters.append([digest])
    if len(clusters) < 2:
        return digests
    # As many different ranks as can be; the earlier where that is even.
    best = max(clusters, key=lambda cluster: len({one.rank for one in cluster}))
    for cluster in clusters:
        if cluster is best:
            continue
        for digest in cluster:
            hours = abs(digest.first_ns - best[0].first_ns) / 3.6e12
            unused[digest.file] = f"is of another time: it was recorded {hours:,.1f} hours apart from {best[0].file}"
    return [digest for digest in digests if digest.file not in unused]


def _one_a_rank(digests: list[TraceDigest], unused: dict[str, str]) -> list[TraceDigest]:
    """The first window of each."""
    kept: dict[int, TraceDigest] = {}
    for digest in sorted(digests, key=lambda one: one.first_ns):
        rank = digest.rank or 0
        first = kept.setdefault(rank, digest)
        if first is not digest:
            later = "a later window" if digest.first_ns > first.first_ns else "the same window"
            unused[digest.file] = f"is {later} of rank {rank}, of which {first.file} is used"
    return list(kept.values())
