"""What traces of `torch.profiler` say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from rankscope.analysis.imported.device_traces.collector_pauses import collector_pauses
from rankscope.analysis.imported.device_traces.communication_bound import communication_bound
from rankscope.analysis.imported.device_traces.data_loading import data_loading
from rankscope.analysis.imported.device_traces.digest import TraceDigest, digest_of
from rankscope.analysis.imported.device_traces.gaps_in_view import not_examined
from rankscope.analysis.imported.device_traces.host_sync import host_sync
from rankscope.analysis.imported.device_traces.late_ranks import late_ranks
from rankscope.analysis.imported.device_traces.launch_bound import launch_bound
from rankscope.analysis.imported.device_traces.notes import notes_of
from rankscope.analysis.imported.device_traces.selection import selected
from rankscope.analysis.imported.device_traces.slow_device import slow_devices
from rankscope.analysis.imported.device_traces.slow_kernel import slow_kernel
from rankscope.analysis.imported.device_traces.slow_link import slow_link
from rankscope.analysis.imported.device_traces.traces import Traces, side_by_side
from rankscope.analysis.imported.examiner import Answer, Digest, Examiner, Shares
from rankscope.base.finding import Finding
from rankscope.records.imported.device_trace import DeviceTrace
from rankscope.records.imported.table import Table

_METHOD: Final = "no rank is done with a collective before all have begun it: each call bounds the clocks' offsets"


class DeviceTraces(Examiner):
    """Kineto traces: how each divides its window, what its device waits for, and which rank the others wait for."""

    reads: ClassVar[type[Table]] = DeviceTrace

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, DeviceTrace)
        return digest_of(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        traces, unused = selected([digest for digest in digests if isinstance(digest, TraceDigest)])
        if not traces:
            return Answer(examined=False, unused=unused)
        said = max((trace.world_size for trace in traces if trace.world_size is not None), default=None)
        together = side_by_side(traces, world_size or said)
        clocks = together.clocks
        step_ns = [ns for trace in traces for ns in trace.step_ns]
        return Answer(
            findings=tuple(findings_of(together)),
            shares=tuple(_renamed(trace) for trace in traces if trace.shares is not None),
            world_size=said,
            steps=max((len(trace.step_numbers) for trace in traces), default=0) or None,
            examined=any(trace.shares is not None or trace.loader for trace in traces) or bool(together.groups),
            step_ms=tuple(ns / 1e6 for ns in step_ns),
            not_examined=tuple(not_examined(together)),
            notes=tuple(notes_of(together)),
            unused=unused,
            clock_method=_METHOD if clocks else "",
            clock_error_us=clocks.error_ns / 1e3 if clocks else None,
        )


def findings_of(traces: Traces) -> list[Finding]:
    """All findings; a rank that another finding calls slow is not called late as well."""
    devices = slow_devices(traces)
    loading = data_loading(traces)
    explained = {
        at
        for finding in (*devices, *(one for one in loading if one.severity != "info" and not one.all_ranks))
        for at, digest in enumerate(traces.digests)
        if digest.rank is not None and digest.rank in finding.ranks
    }
    return [
        *devices,
        *loading,
        *late_ranks(traces, explained),
        *slow_link(traces),
        *host_sync(traces),
        *collector_pauses(traces),
        *launch_bound(traces),
        *communication_bound(traces),
        *slow_kernel(traces),
    ]


def _renamed(trace: TraceDigest) -> Shares:
    """A member of an archive had another name while it was read."""
    assert trace.shares is not None
    return replace(trace.shares, file=trace.file)
