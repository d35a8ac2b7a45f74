"""What is found in Kineto traces: on made-up jobs each fault alone, on real files the answers that are known."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.imported.device_traces.annotations import annotation_table, innermost
from rankscope.analysis.imported.device_traces.bandwidth import bandwidth_of
from rankscope.analysis.imported.device_traces.budget import PARTS, budget_of
from rankscope.analysis.imported.device_traces.comparison import compare_traces
from rankscope.analysis.imported.device_traces.counters import counter_table
from rankscope.analysis.imported.device_traces.critical_path import critical_path
from rankscope.analysis.imported.device_traces.dependencies import KERNEL_GAP, LAUNCH_DELAY, dependencies_of
from rankscope.analysis.imported.device_traces.digest import TraceDigest, digest_of
from rankscope.analysis.imported.device_traces.efficiency import efficiency_of
from rankscope.analysis.imported.device_traces.launches import launches_of
from rankscope.analysis.imported.device_traces.memory import memory_curve
from rankscope.analysis.imported.device_traces.nesting import nesting_of
from rankscope.analysis.imported.device_traces.origins import origin_of
from rankscope.analysis.imported.device_traces.selection import selected
from rankscope.analysis.imported.device_traces.shares import shares_of
from rankscope.analysis.imported.device_traces.steps import steps_of
from rankscope.analysis.imported.device_traces.tables import kernel_table, launching_operators, operator_table
from rankscope.analysis.imported.device_traces.traces import side_by_side
from rankscope.analysis.imported.device_traces.work import work_of
from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.device_traces import DeviceTraces
from rankscope.artefacts.readers.kineto import Kineto
from rankscope.base.finding import Location
from rankscope.records.imported.device_trace import (
    ANNOTATION,
    DEVICE_WORK,
    KERNEL,
    OPERATOR,
    OTHER,
    PYTHON,
    RUNTIME,
    DeviceTrace,
)  # fmt: skip

START = 6_322_354_283_000.0
NAMES = ("gemm_a", "gemm_b", "flash_fwd", "elementwise_add", "layer_norm", "gelu")


@dataclass(frozen=True)
class Rank:
    """How one rank of a made-up job behaves. Times in µs."""

    host: float = 12.0
    """Between launches."""
    kernel: float = 60.0
    kernels: int = 60
    slower: float = 1.0
    loading: float = 0.0
    loader: str = "_MultiProcessingDataLoaderIter"
    syncs: int = 1
    """Times a step that the host waits for the device."""
    pause: float = 0.0
    """Of the collector, in each step."""
    busy_host: float = 0.0
    """Work of the host before it launches anything in a step."""
    blocks: float = 2.0
    """Of each kernel over multiprocessors."""
    one_kernel: float = 0.0
    """Share of the time that goes to a softmax."""
    starts_us: float = 0.0
    """By how much the clock is ahead."""


def job(
    tmp_path: Path,
    ranks: Sequence[Rank | Sequence[Rank]],
    *,
    steps: int = 6,
    transfer: float = 200.0,
    calls: int = 4,
    groups: Sequence[Sequence[int]] = (),
    slow_group: int = -1,
    skip: dict[int, int] | None = None,
    clock: bool = True,
    arguments: bool = True,
) -> list[DeviceTrace]:
    """Traces of a data-parallel job: each step computes in `calls` parts, each part ends with an all-reduce that
    nothing hides. A rank may behave otherwise in every step. `skip`: steps that a rank's window lacks at its start."""
    spans: list[list[dict[str, Any]]] = [[] for _ in ranks]
    random = Random(1)
    host = [START + 1000.0] * len(ranks)
    device = list(host)
    number = 0
    groups = groups or [list(range(len(ranks)))]
    for step in range(steps):
        now = [rank if isinstance(rank, Rank) else rank[step % len(rank)] for rank in ranks]
        begin = list(host)
        for part in range(calls):
            arrive = list(device)
            launched = list(host)
            for at, rank in enumerate(now):
                out = spans[at]
                if part == 0:
                    host[at] = _before(out, rank, host[at])
                for index in range(rank.kernels // calls):
                    number += 1
                    host[at] += rank.host
                    name = NAMES[index % len(NAMES)]
                    _launch(out, name, host[at] - 9, number)
                    length = rank.kernel * rank.slower * (0.98 + 0.04 * random.random())
                    if rank.one_kernel:
                        softmax = index == 0
                        share = rank.one_kernel if softmax else 1 - rank.one_kernel
                        length *= share * (rank.kernels // calls if softmax else 1)
                        name = "void softmax_warp_forward<float>(float*)" if softmax else name
                    start = max(device[at] + 0.5, host[at] - 2)
                    more = {"blocks per SM": rank.blocks, "correlation": number}
                    out.append(_span("kernel", name, start, length, at, 7, stream=7, device=at, **more))
                    device[at] = start + length
                    if rank.syncs > 1 and index % max(1, rank.kernels // rank.syncs) == 0:
                        host[at] = _sync(out, host[at], device[at], number)
                arrive[at], launched[at] = device[at], host[at]
            for index, group in enumerate(groups if len(ranks) > 1 else []):
                start = {at: max(arrive[at], launched[at] + 6) for at in group}
                took = transfer * (5 if index == slow_group else 1) * (0.98 + 0.04 * random.random())
                end = max(start.values()) + took
                for at in group:
                    number += 1
                    _launch(spans[at], "c10d", launched[at], number, "c10d::allreduce_")
                    lane, ids = (at, 20 + index), _ids(at, number, index, group, arguments)
                    name = f"ncclDevKernel_{'AllReduce_Sum_f32_RING_LL' if arguments else 'Generic'}(x)"
                    spans[at].append(_span("kernel", name, start[at], end - start[at], *lane, **ids))
                    device[at] = end + random.random()
        for at, rank in enumerate(now):
            if rank.syncs:
                host[at] = _sync(spans[at], host[at], device[at], number)
            spans[at].append(_span("user_annotation", f"ProfilerStep#{step + 10}", begin[at], host[at] - begin[at]))
    return [
        _read(tmp_path, at, len(ranks), _shifted(out, at, ranks, skip or {}), clock) for at, out in enumerate(spans)
    ]


def _before(out: list[dict[str, Any]], rank: Rank, host: float) -> float:
    """What the host does before the first launch of a step."""
    if rank.loading:
        out.append(_span("user_annotation", f"enumerate(DataLoader)#{rank.loader}.__next__", host, rank.loading))
        host += rank.loading
    if rank.pause:
        out.append(_span("python_function", "<built-in function collect>", host, rank.pause))
        host += rank.pause
    if rank.busy_host:
        out.append(_span("cpu_op", "tokenise", host, rank.busy_host))
        host += rank.busy_host
    return host


def _launch(out: list[dict[str, Any]], name: str, ts: float, number: int, operator: str = "") -> None:
    out.append(_span("cpu_op", operator or f"aten::{name}", ts, 8, **{"External id": number}))
    out.append(_span("cuda_runtime", "cudaLaunchKernel", ts + 2, 4, **{"External id": number, "correlation": number}))


def _sync(out: list[dict[str, Any]], host: float, device: float, number: int) -> float:
    end = max(host + 3, device + 5)
    out.append(_span("cpu_op", "aten::item", host, end - host + 2, **{"External id": 10**6 + number}))
    out.append(_span("cpu_op", "aten::_local_scalar_dense", host + 0.2, end - host + 1))
    out.append(_span("cuda_runtime", "cudaStreamSynchronize", host + 0.5, end - host - 0.5, correlation=10**7 + number))
    return end + 3


def _ids(rank: int, number: int, index: int, group: Sequence[int], arguments: bool) -> dict[str, object]:
    """Arguments of an all-reduce; of RCCL's kernel there are few."""
    few: dict[str, object] = {"stream": 20 + index, "device": rank, "correlation": number}
    more = {
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": len(group),
        "dtype": "Float", "Process Group Name": str(index), "Process Group Ranks": str(list(group)),
    }  # fmt: skip
    return {**few, **more} if arguments else few


def _span(cat: str, name: str, ts: float, dur: float, *lane: object, **args: object) -> dict[str, Any]:
    """`lane`: process and thread, or device and stream."""
    pid, tid = lane or (900, 900)
    times = {"ts": round(ts, 3), "dur": round(dur, 3)}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def _shifted(
    out: list[dict[str, Any]], at: int, ranks: Sequence[Rank | Sequence[Rank]], skip: dict[int, int]
) -> list[dict[str, Any]]:
    first = ranks[at] if isinstance(ranks[at], Rank) else ranks[at][0]  # type: ignore[index]
    assert isinstance(first, Rank)
    if at in skip:
        begun = sorted(event["ts"] for event in out if event["name"].startswith("ProfilerStep#"))[skip[at]]
        out = [event for event in out if event["ts"] >= begun]
    return [{**event, "ts": event["ts"] + first.starts_us} for event in out]


def _read(tmp_path: Path, rank: int, world_size: int, events: list[dict[str, Any]], clock: bool) -> DeviceTrace:
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}],
        "distributedInfo": {"rank": rank, "world_size": world_size, "backend": "nccl"},
    }
    if clock:
        header["baseTimeNanoseconds"] = 1_759_300_074_000_000_000
    path = tmp_path / f"trace-rank{rank}.json"
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return only(path)


def only(path: Path) -> DeviceTrace:
    (table,) = Kineto().read(path)
    assert isinstance(table, DeviceTrace)
    return table


def examined(*traces: DeviceTrace, world_size: int | None = None) -> Answer:
    examiner = DeviceTraces()
    digests = [pickle.loads(pickle.dumps(examiner.digest(trace))) for trace in traces]
    return examiner.examine(digests, world_size)


def found(answer: Answer) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(one.cause, one.ranks, one.all_ranks) for one in answer.findings if one.severity != "info"]


GOOD = Rank()
FOUR = (GOOD,) * 4
LAUNCHING = Rank(host=60, kernel=5)

JOBS: dict[str, tuple[Sequence[Any], dict[str, Any], list[tuple[str, tuple[int, ...], bool]]]] = {
    "healthy": (FOUR, {}, []),
    "healthy on one rank": ((GOOD,), {}, []),
    "healthy, a little waiting for data": ((Rank(loading=100),), {}, []),
    "healthy with unequal windows": (FOUR, {"skip": {1: 2, 3: 1}}, []),
    "healthy, clocks far apart": ((*FOUR[1:], Rank(starts_us=5e4)), {"clock": False}, []),
    "healthy with hidden arguments": (FOUR, {"arguments": False}, []),
    "launch-bound": ((LAUNCHING,), {}, [("launch-bound", (0,), False)]),
    "launch-bound everywhere": ((LAUNCHING,) * 4, {"transfer": 20.0}, [("launch-bound", (0, 1, 2, 3), True)]),
    "waiting for data": (
        (Rank(loading=1500, loader="_SingleProcessDataLoaderIter"),), {}, [("slow-data-loading", (0,), False)],
    ),
    "waiting for data on one rank": (
        (*FOUR[1:], Rank(loading=1500)), {}, [("slow-data-loading", (3,), False)],
    ),
    "reading values": ((Rank(syncs=60, host=40, kernel=60),), {}, [("host-sync", (0,), False)]),
    "collecting garbage": ((Rank(pause=900),), {}, [("gc-pause", (0,), False)]),
    "one kernel": ((Rank(one_kernel=0.6),), {}, [("slow-kernel", (0,), False)]),
    "much to send": (FOUR, {"transfer": 1500.0}, [("communication-bound", (0, 1, 2, 3), True)]),
    "a busy host": ((GOOD, Rank(busy_host=1500), GOOD, GOOD), {}, [("slow-code", (1,), False)]),
    "a busy host, unequal windows": (
        (GOOD, Rank(busy_host=1500), GOOD, GOOD), {"skip": {0: 2, 2: 1}}, [("slow-code", (1,), False)],
    ),
    "a busy host, no clock": (
        (GOOD, Rank(busy_host=1500, starts_us=-7e5), GOOD, GOOD), {"clock": False}, [("slow-code", (1,), False)],
    ),
    "two busy hosts of four": (
        (GOOD, Rank(busy_host=1500), Rank(busy_host=1500), GOOD), {}, [("slow-code", (1, 2), False)],
    ),
    "a slow device": ((GOOD, GOOD, Rank(slower=1.3), GOOD), {}, [("slow-device", (2,), False)]),
    "more work": ((GOOD, GOOD, GOOD, Rank(kernels=96)), {}, [("uneven-work", (3,), False)]),
    "longer inputs": ((GOOD, GOOD, GOOD, Rank(slower=1.4, blocks=2.8)), {}, [("uneven-work", (3,), False)]),
    "work that moves": (
        [[Rank(kernels=108 if step == at else 60) for step in range(4)] for at in range(4)], {"steps": 8},
        [("uneven-work", (0, 1, 2, 3), True)],
    ),
    "a slow link": (
        (GOOD,) * 8, {"groups": [(0, 1), (2, 3), (4, 5), (6, 7)], "slow_group": 2}, [("slow-link", (4, 5), False)],
    ),
}  # fmt: skip


class TestMatrix:
    @pytest.mark.parametrize("name", JOBS)
    def test_only_what_is_wrong_is_found(self, tmp_path, name):
        ranks, options, expected = JOBS[name]

        assert found(examined(*job(tmp_path, ranks, **options))) == expected

    @pytest.mark.parametrize("name", [name for name in JOBS if name.startswith("healthy")])
    def test_a_healthy_job_has_a_verdict(self, tmp_path, name):
        ranks, options, _ = JOBS[name]
        answer = examined(*job(tmp_path, ranks, **options))

        assert (answer.examined, answer.steps, len(answer.shares)) == (True, 6, len(ranks))


class TestFigures:
    def test_shares_add_up(self, tmp_path):
        for share in examined(*job(tmp_path, FOUR)).shares:
            parts = share.compute + share.exposed_communication + share.exposed_memory + share.idle
            assert parts == pytest.approx(1, abs=1e-9)

    def test_what_a_late_rank_costs(self, tmp_path):
        (finding,) = examined(*job(tmp_path, (GOOD, Rank(busy_host=1500), GOOD, GOOD))).findings
        values = {one.text: one.value for one in finding.evidence}

        # The host of rank 1 works 1,500 µs in each of 6 steps before it launches anything.
        assert values["others wait on it for"] == pytest.approx(9.0, rel=0.05)
        assert values["its device is idle for longer than the others' by"] == pytest.approx(7.5, rel=0.3)
        assert finding.component == "tokenise"
        assert (finding.first_step, finding.last_step, finding.phase) == (10, 15, None)

    def test_bandwidth_is_that_of_the_last_to_come(self, tmp_path):
        traces = job(tmp_path, (GOOD, Rank(busy_host=1500), GOOD, GOOD))
        (row,) = bandwidth_of(side_by_side([digest_of(trace) for trace in traces], 4))

        assert (row.operation, row.size, row.calls, row.num_ranks) == ("allreduce", 4 << 20, 24, 4)
        assert row.transfer_ns == pytest.approx(200e3, rel=0.05)
        assert row.gb_per_s == pytest.approx((4 << 20) / 200e3, rel=0.05)
        assert row.bus_gb_per_s == pytest.approx(row.gb_per_s * 1.5)

    def test_clocks_are_bounded_by_collectives(self, tmp_path):
        traces = job(tmp_path, (GOOD, replace(GOOD, starts_us=70.0), GOOD, GOOD))
        together = side_by_side([digest_of(trace) for trace in traces], 4)
        answer = examined(*traces)

        assert together.clocks is not None
        assert together.clocks.offset_ns[1] == pytest.approx(70_000, abs=together.clocks.error_ns)
        assert answer.clock_error_us is not None
        assert answer.clock_error_us < 250
        assert "begun" in answer.clock_method

    def test_steps_are_those_of_all_ranks(self, tmp_path):
        answer = examined(*job(tmp_path, FOUR))

        assert (answer.steps, len(answer.step_ms), answer.world_size) == (6, 24, 4)

    def test_notes_show_tables(self, tmp_path):
        notes = examined(*job(tmp_path, FOUR)).notes

        assert any(line.startswith("rank 0: the device waits for ") for line in notes)
        assert any(line.startswith("rank 3: critical path of step ") for line in notes)
        assert any(line.startswith("allreduce of 4.2 MB over 4 ranks: 24 calls, transfer") for line in notes)

    def test_a_graph_launch_has_many_kernels(self, tmp_path):
        events = [
            _span("cpu_op", "replay", 10, 20),
            _span("cuda_runtime", "cudaGraphLaunch", 12, 10, correlation=5),
            *(_span("kernel", f"k{at}", 30 + 10 * at, 9, 0, 7, stream=7, correlation=5) for at in range(4)),
        ]
        trace = _read(tmp_path, 0, 1, events, True)
        work = work_of(trace)
        launch = launches_of(trace, work)
        path = critical_path(trace, work, launch, int(trace.start_ns.min()), int(trace.start_ns.max()))

        assert launch.tolist() == [1, 1, 1, 1]
        assert path is not None
        assert (path.compute_ns, path.launch_delay_ns, path.kernel_gap_ns) == (36_000, 18_000, 3_000)

    def test_memory_peaks(self, tmp_path):
        events = [
            _span("kernel", "k", 1, 2, 0, 7, stream=7),
            *(
                {"ph": "i", "s": "t", "name": "[memory]", "pid": 9, "tid": 9, "ts": at, "args": {
                    "Bytes": change, "Total Allocated": total, "Total Reserved": 4096, "Device Type": 1, "Device Id": 0,
                }}
                for at, change, total in ((1, 100, 100), (3, -100, 0), (2, 1000, 1100))
            ),
        ]  # fmt: skip
        trace = _read(tmp_path, 0, 1, events, True)
        (peak,) = digest_of(trace).memory
        curve = memory_curve(trace, 0)

        assert (peak.peak_bytes, peak.reserved_bytes, peak.grown_bytes, peak.absolute) == (1100, 4096, -100, True)
        assert curve is not None
        assert curve.allocated.tolist() == [100, 1100, 0]

    def test_where_a_kernel_came_from(self, tmp_path):
        events = [
            _span("python_function", "train.py(41): step", 0, 100),
            _span("python_function", "nn.Module: Block_3", 1, 90),
            _span("python_function", "torch/nn/functional.py(7): softmax", 2, 80),
            _span("cpu_op", "aten::softmax", 3, 20),
            _span("cuda_runtime", "cudaLaunchKernel", 5, 4, correlation=1),
            _span("kernel", "softmax", 30, 10, 0, 7, stream=7, correlation=1),
        ]
        trace = _read(tmp_path, 0, 1, events, True)
        origin = origin_of(trace, nesting_of(trace), 4)

        assert (origin.operator, origin.modules, origin.line) == (
            "aten::softmax", ("Block_3",), Location("train.py", 41, "step"),
        )  # fmt: skip
        assert origin.place == " in Block_3 (train.py:41)"

    def test_a_backward_kernel_comes_from_its_forward(self, tmp_path):
        forward = {"External id": 1, "Sequence number": 5, "Fwd thread id": 0}
        backward = {"External id": 2, "Sequence number": 5, "Fwd thread id": 1}
        events = [
            _span("python_function", "model.py(9): forward", 0, 50),
            _span("cpu_op", "aten::mm", 3, 20, **forward),
            _span("cpu_op", "MmBackward0", 100, 20, 900, 901, **backward),
            _span("cuda_runtime", "cudaLaunchKernel", 105, 4, 900, 901, correlation=1),
            _span("kernel", "gemm", 130, 10, 0, 7, stream=7, correlation=1),
        ]
        trace = _read(tmp_path, 0, 1, events, True)
        origin = origin_of(trace, nesting_of(trace), 3)

        assert (origin.operator, origin.line) == ("MmBackward0", Location("model.py", 9, "forward"))


class TestSelection:
    def test_a_later_window_of_a_rank_is_left_out(self, tmp_path):
        trace = job(tmp_path, (GOOD,))[0]
        later = replace(trace, file="later.json", start_ns=trace.start_ns + 10**9)
        answer = examined(later, trace)

        assert answer.unused == {"later.json": f"is a later window of rank 0, of which {trace.file} is used"}
        assert [share.file for share in answer.shares] == [trace.file]

    def test_the_same_file_twice_is_used_once(self, tmp_path):
        trace = job(tmp_path, (GOOD,))[0]

        assert list(examined(trace, replace(trace, file="copy.json")).unused) == ["copy.json"]

    def test_another_jobs_world_size_is_left_out(self, tmp_path):
        traces = job(tmp_path, FOUR)
        answer = examined(*traces, replace(traces[0], file="other.json", rank=7, world_size=64))

        assert list(answer.unused) == ["other.json"]
        assert "its world size is 64" in answer.unused["other.json"]

    def test_another_days_trace_is_left_out(self, tmp_path):
        traces = job(tmp_path, FOUR)
        old = replace(traces[0], file="old.json", rank=2, start_ns=traces[0].start_ns - 86_400 * 10**9)
        answer = examined(old, traces[0], traces[1], traces[3])

        assert "24.0 hours" in answer.unused["old.json"]

    def test_traces_without_a_rank_all_stay(self, tmp_path):
        traces = [replace(trace, rank=None) for trace in job(tmp_path, (LAUNCHING, GOOD), transfer=1.0)]
        kept, unused = selected([digest_of(trace) for trace in traces])

        assert (len(kept), unused) == (2, {})

    def test_findings_of_traces_without_a_rank_name_their_files(self, tmp_path):
        (one,) = job(tmp_path, (LAUNCHING,))
        traces = [replace(one, rank=None, world_size=None, file=f"/x/{name}.json") for name in ("a", "b")]
        findings = examined(*traces).findings

        assert [(finding.ranks, finding.all_ranks) for finding in findings] == [((), False), ((), False)]
        assert "a.json" in findings[0].title

    def test_one_trace_without_a_rank_is_rank_0s(self, tmp_path):
        (one,) = job(tmp_path, (LAUNCHING,))

        assert found(examined(replace(one, rank=None, world_size=None))) == [("launch-bound", (0,), False)]


class TestWhatCannotBeSeen:
    def test_a_trace_of_the_host_alone(self, tmp_path):
        events = [_span("cpu_op", f"aten::op{number}", 10 * number, 9) for number in range(100)]
        answer = examined(_read(tmp_path, 0, 1, events, True))

        assert (answer.findings, answer.shares, answer.examined) == ((), (), False)
        assert "only the host was recorded on rank 0" in [why for _, _, why in answer.not_examined]

    def test_loading_is_found_without_a_device(self, tmp_path):
        events = []
        for step in range(4):
            at = step * 100.0
            events += [
                _span("user_annotation", f"ProfilerStep#{step}", at, 100),
                _span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 1, 40),
                _span("cpu_op", "aten::mm", at + 45, 50),
            ]
        answer = examined(_read(tmp_path, 0, 1, events, True))

        assert found(answer) == [("slow-data-loading", (0,), False)]

    def test_one_rank_of_several_says_what_it_cannot(self, tmp_path):
        answer = examined(job(tmp_path, FOUR)[2])

        assert ("late ranks, slow-link, clock", "only one rank's trace is at hand") in [
            (what, why) for what, _, why in answer.not_examined
        ]

    def test_much_communication_on_one_rank_alone_is_no_sure_thing(self, tmp_path):
        answer = examined(job(tmp_path, FOUR, transfer=3000.0)[0])

        assert [(one.cause, one.confidence) for one in answer.findings] == [("communication-bound", 0.5)]

    def test_missing_ranks_are_named(self, tmp_path):
        answer = examined(*job(tmp_path, FOUR)[:2])

        said = [(what, why) for what, _, why in answer.not_examined]
        assert ("late ranks", "ranks 2 and 3 of 4 left no trace") in said

    def test_nothing_at_all(self):
        assert DeviceTraces().examine([], None).examined is False


class TestComparison:
    def test_says_what_changed(self, tmp_path):
        (before,) = job(tmp_path, (GOOD,))
        (after,) = job(tmp_path, (Rank(slower=2.0, loading=100),), steps=3)
        change = compare_traces(before, after)

        assert (change.per_step, change.steps) == (True, (6, 3))
        assert change.of("added", on_device=False) == ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",)
        gemm = next(row for row in change.rows if row.name == "gemm_a")
        assert (gemm.change, gemm.calls) == ("equal", (12.0, 12.0))
        assert gemm.ns[1] == pytest.approx(2 * gemm.ns[0], rel=0.05)

    def test_a_step_that_is_not_there(self, tmp_path):
        (trace,) = job(tmp_path, (GOOD,))

        with pytest.raises(ValueError, match="has no step 3; it has 10 to 15"):
            compare_traces(trace, trace, step=3)


def of_real(data: Any, name: str) -> DeviceTrace:
    path = data(f"kineto/{name}")
    return only(next(iter(sorted(path.iterdir()))) if path.is_dir() else path)


def without_last_step(trace: DeviceTrace) -> DeviceTrace:
    """What HolisticTraceAnalysis keeps of a trace: no work that was launched in the last marked step, the mark on the
    device's side, where there is one, taken for the step's start."""
    work = work_of(trace)
    launch = launches_of(trace, work)
    marks = np.array([name.startswith("ProfilerStep#") for name in trace.names])[trace.name]
    last = int(trace.start_ns[marks].max())
    kept = trace.start_ns < last
    for category in DEVICE_WORK:
        kept[trace.category == category] = False
    early = (launch >= 0) & (trace.start_ns[launch] < last)
    kept[work.span[early]] = True
    category = trace.category.copy()
    category[~kept] = OTHER
    return replace(trace, category=category)


def with_triton_operators_as_kernels(trace: DeviceTrace) -> DeviceTrace:
    """As it counts Triton's operators, which have a `stream` though they run on the host: it adds them to the device's
    work, and so puts the device's idle time of jobs with Triton kernels too high."""
    category = trace.category.copy()
    triton = [name.startswith(("triton_", "XXT_kernel", "ba_plus_cAA")) for name in trace.names]
    category[(category == OPERATOR) & np.array(triton)[trace.name]] = KERNEL
    return replace(trace, category=category)


def rounded(trace: DeviceTrace) -> DeviceTrace:
    """As it rounds by default: starts up and ends down to whole µs."""
    start = -(-trace.start_ns // 1000) * 1000
    end = (trace.start_ns + trace.duration_ns) // 1000 * 1000
    return replace(trace, start_ns=start, duration_ns=end - start)


def idle_and_overlap(trace: DeviceTrace) -> tuple[float, float]:
    share = shares_of(work_of(trace), "", 0)
    assert share is not None
    return 100 * share.idle, 100 * (share.hidden_communication or 0)


class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "mean", "parts", "efficiency"),
        [
            (
                "v100-resnet50-a", 177_592,
                {"compute": 98_589, "copy": 1_915, "runtime": 2_908, "data": 59_262, "host": 13_674},
                (55.51, 54.68, 49.13),
            ),
            ("v100-resnet50-b", 141_068, {"compute": 99_145, "data": 1_186, "host": 22_665}, (70.27, 69.22, 48.91)),
        ],
    )  # fmt: skip
    def test_a_step_of_resnet50(self, data, name, mean, parts, efficiency):
        trace = of_real(data, name)
        work = work_of(trace)
        steps = steps_of(trace, work, launches_of(trace, work))
        budget = budget_of(trace, work, steps).mean(axis=0) / 1e3
        fills = efficiency_of(trace, work, steps)

        assert steps.mean_ns == pytest.approx(mean * 1e3, abs=1e3)
        assert {part: round(budget[PARTS.index(part)]) for part in parts} == parts
        assert budget.sum() == pytest.approx(mean, abs=1)
        assert fills is not None
        assert (fills.utilisation, fills.sm_efficiency, fills.occupancy) == pytest.approx(
            tuple(value / 100 for value in efficiency), abs=2e-4
        )
        assert fills.tensor_core_share == 0

    def test_resnet50_waits_for_data_without_workers(self, data):
        (finding,) = examined(of_real(data, "v100-resnet50-a")).findings

        assert (finding.cause, finding.ranks, finding.component) == (
            "slow-data-loading", (0,), "_SingleProcessDataLoaderIter",
        )  # fmt: skip
        assert finding.cost.share == pytest.approx(0.3337, abs=1e-4)
        assert finding.cost.ms_per_step == pytest.approx(59.262, abs=1e-3)
        assert finding.location == Location("resnet50_profiler_api.py", 42, "<module>")

    def test_resnet50_with_workers_waits_for_nothing(self, data):
        assert examined(of_real(data, "v100-resnet50-b")).findings == ()

    def test_operators_and_kernels_of_resnet50(self, data):
        trace = of_real(data, "v100-resnet50-a")
        work, nesting = work_of(trace), nesting_of(trace)
        above = launching_operators(trace, work, launches_of(trace, work), nesting)
        rows = {row.name: row for row in operator_table(trace, work, nesting, above)}
        row = rows["aten::cudnn_convolution_backward_weight"]

        assert (row.calls, row.host_self_ns, row.host_total_ns, row.device_self_ns) == (
            318, 22_804_000, 40_246_000, 142_461_000,
        )  # fmt: skip
        assert rows["aten::conv2d"].device_total_ns == 126_619_000
        assert kernel_table(trace, work)[0].total_ns == 80_756_000

    def test_the_late_rank_of_eight(self, data):
        traces = [only(path) for path in sorted(data("kineto/h100-8rank").iterdir())]
        answer = examined(*traces)
        (finding,) = answer.findings
        values = {one.text: one.value for one in finding.evidence}

        assert (finding.cause, finding.ranks, finding.all_ranks, finding.phase) == ("slow-code", (1,), False, None)
        assert values["in collectives it spends"] == pytest.approx(23.1, abs=0.05)
        assert 48 <= (values["and the other ranks, in the median"] or 0) <= 59
        assert (answer.steps, answer.world_size, answer.unused) == (4, 8, {})
        assert answer.clock_error_us is not None
        assert answer.clock_error_us < 50

    def test_kernels_of_eight_ranks_are_as_fast(self, data):
        digests = [digest_of(only(path)) for path in sorted(data("kineto/h100-8rank").iterdir())]
        names = {row.name for row in digests[0].kernels if not row.communicates and row.calls > 20}
        tables = [{row.name: row.median_ns for row in digest.kernels if row.name in names} for digest in digests]
        ratios = [tables[1][name] / tables[0][name] for name in names if name in tables[1]]

        assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1, abs=0.01)

    @pytest.mark.parametrize(
        ("rank", "rounded_off", "exactly"),
        [
            (0, (11.14, 21.4), (9.73, 23.02)), (1, (26.84, 22.2), (25.44, 23.59)), (2, (14.12, 21.2), (12.84, 22.69)),
            (3, (16.49, 17.0), (15.17, 18.33)), (4, (17.78, 16.9), (16.49, 18.30)), (5, (17.81, 17.7), (16.50, 19.04)),
            (6, (17.80, 15.8), (16.55, 16.86)), (7, (19.01, 26.9), (17.69, 28.21)),
        ],
    )  # fmt: skip
    def test_idle_and_overlap_of_eight_ranks_equal_hta(self, data, rank, rounded_off, exactly):
        """HolisticTraceAnalysis 0.5.0 drops the last step and takes some operators for kernels; by default it rounds,
        with HTA_DISABLE_NS_ROUNDING=1 not."""
        full = only(data(f"kineto/h100-8rank/trace-rank{rank}.json.gz"))
        trace = with_triton_operators_as_kernels(without_last_step(full))

        assert idle_and_overlap(trace) == pytest.approx(exactly, abs=0.02)
        assert idle_and_overlap(rounded(trace)) == pytest.approx(rounded_off, abs=0.1)

    @pytest.mark.parametrize(
        ("name", "compute", "idle", "cause"),
        [
            ("gaunernst_bert-small-uncased__1016001", 7.86, 92.08, ["launch-bound"]),
            ("Falconsai_nsfw_image_detection__1016002", 16.21, 83.79, ["launch-bound"]),
            ("Qwen_Qwen1.5-0.5B-Chat__1016005", 91.43, 8.56, []),
            ("facebook_timesformer-base-finetuned-k400__1016002", 96.86, 0.97, ["slow-kernel"]),
        ],
    )
    def test_single_forward_passes(self, data, name, compute, idle, cause):
        answer = examined(only(data(f"kineto/h100-single/{name}.json.gz")))
        (share,) = answer.shares

        assert share.compute * 100 == pytest.approx(compute, abs=0.1)
        assert share.idle * 100 == pytest.approx(idle, abs=0.5)
        assert [finding.cause for finding in answer.findings] == cause

    def test_the_slow_kernel_is_the_softmax(self, data):
        (finding,) = examined(
            only(data("kineto/h100-single/facebook_timesformer-base-finetuned-k400__1016002.json.gz"))
        ).findings

        assert finding.component == "cunn_SoftMaxForward"
        assert "aten::_softmax in TimeSformerAttention_3" in finding.title

    def test_work_and_annotations_with_nanoseconds(self, data):
        full = of_real(data, "hta/ns_resolution_trace")
        trace = without_last_step(full)
        work = work_of(trace)
        rows = annotation_table(full, work_of(full))
        inner = innermost(trace, work)

        assert len(work.span) == 4_876
        assert sum(trace.names[trace.name[at]] == "Optimizer.step#SGD.step" for at in inner.tolist() if at >= 0) == 27
        assert sum(row.on_device for row in rows) == 3
        marks = {trace.names[name] for name in trace.name[trace.category == ANNOTATION].tolist()}
        assert len(marks) == 12

    def test_counters_of_a_kernel(self, data):
        trace = of_real(data, "hta/cupti_profiler")
        rows = counter_table(trace, nesting_of(trace))

        assert len(rows) == 77
        assert rows[5].kernel.startswith("void fft2d_r2c_32x32<float, false, 5u, true>")
        assert rows[5].counters["smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"] == 86_114_304
        assert rows[5].operators[0] == "aten::conv2d"

    @pytest.mark.parametrize(
        ("name", "instance", "points", "spans"),
        [
            ("simple_add-trace", 1, 315, 159),
            ("alexnet-benchmark_result_2869224_1695835535_trace", 1, 149, 77),
            ("alexnet-benchmark_result_2869224_1695835535_trace", 0, 171, 88),
        ],
    )
    def test_critical_path_equals_hta(self, data, name, instance, points, spans):
        trace = only(data(f"kineto/hta/critical_path/{name}.json.gz"))
        work = work_of(trace)
        first, last = instance_of(trace, "[param|pytorch.model.alex_net|0|0|0|measure|forward]", instance)
        path = critical_path(trace, work, launches_of(trace, work), first, last)

        assert path is not None
        assert (len(path.spans), len(set(path.spans.tolist())), len(path.kind)) == (points, spans, points - 1)

    def test_edges_of_the_critical_path(self, data):
        trace = only(data("kineto/hta/critical_path/simple_add-trace.json.gz"))
        work = work_of(trace)
        first, last = instance_of(trace, "[param|pytorch.model.alex_net|0|0|0|measure|forward]", 1)
        graph = dependencies_of(trace, work, launches_of(trace, work), first, last)
        number = trace.correlation[graph.spans].tolist()
        edges = {
            (number[tail // 2], number[head // 2], kind): weight
            for tail, head, weight, kind in zip(graph.tail, graph.head, graph.weight, graph.kind, strict=True)
        }

        assert edges[5597, 5597, LAUNCH_DELAY] == 27_000
        assert edges[5597, 5604, KERNEL_GAP] == 7_000

    def test_a_comparison_of_one_step(self, data):
        before, after = (only(data(f"kineto/hta/trace_compare/{name}.json.gz")) for name in ("base", "test"))
        change = compare_traces(before, after, step=1010)
        counts = [len(change.of(kind, on_device=False)) for kind in ("equal", "added", "removed")]

        assert counts == [5, 3, 1]
        assert change.of("removed", on_device=False) == ("nccl:all_reduce",)
        assert len(change.of("removed", on_device=True)) == 1

    @pytest.mark.parametrize(
        "name",
        [
            "hta/cpu_only", "hta/amd_trace", "hta/call_stack", "hta/critical_path", "hta/distributed_info_unavailable",
            "hta/rank_non_gpu", "hta/timeline_analysis", "hta/trace_diff", "hta/triton_example", "small-pair",
        ],
    )  # fmt: skip
    def test_is_silent_on_all_others(self, data, name):
        for path in sorted(data(f"kineto/{name}").iterdir()):
            assert found(examined(only(path))) == []

    def test_eight_ranks_of_which_some_are_of_another_run(self, data):
        eight = [only(path) for path in sorted(data("kineto/h100-8rank").iterdir())]
        other = of_real(data, "hta/trace_diff")
        answer = examined(*eight, other)

        assert list(answer.unused) == [other.file]
        assert found(answer) == [("slow-code", (1,), False)]


def instance_of(trace: DeviceTrace, name: str, instance: int) -> tuple[int, int]:
    spans = np.flatnonzero((trace.name == trace.names.index(name)) & (trace.category == ANNOTATION)).tolist()
    at = sorted(spans, key=lambda span: int(trace.start_ns[span]))[instance]
    return int(trace.start_ns[at]), int(trace.start_ns[at] + trace.duration_ns[at])


def test_a_digest_stays_small(tmp_path):
    (trace,) = job(tmp_path, (GOOD,), steps=60)
    digest = digest_of(trace)

    assert isinstance(digest, TraceDigest)
    assert len(pickle.dumps(digest)) < 20_000


def test_times_of_a_made_up_trace(tmp_path):
    (trace,) = job(tmp_path, (GOOD,))
    work = work_of(trace)

    assert math.isclose(work.idle.total + work.busy.total, work.window_ns)
    assert {OPERATOR, RUNTIME, ANNOTATION} <= set(trace.category.tolist()) - {PYTHON}
