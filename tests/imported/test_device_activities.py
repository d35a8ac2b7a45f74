"""GPUs that starve, each for another reason; GPUs that do not; the real exports."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.device_activities import DeviceActivities
from rankscope.artefacts.readers.nsight_systems import NsightSystems
from rankscope.records.imported import device_activity as table
from rankscope.records.imported.device_activity import Device, DeviceActivity

US = 1000
NAMES = (
    "gemm", "ncclDevKernel_AllReduce", "cudaLaunchKernel", "cudaStreamSynchronize_v3020", "DataLoader.__next__",
    "step", "offload",
)  # fmt: skip
GEMM, NCCL, LAUNCH, SYNC, LOAD, STEP, OFFLOAD = range(7)
THREAD = 0x1000000 + 7


class Recorder:
    """Writes down what a host asks and what GPUs do."""

    def __init__(self) -> None:
        self.activities: list[tuple[int, int, int, int, int, int]] = []
        self.calls: list[tuple[int, int, int, int]] = []
        self.ranges: list[tuple[int, int, int]] = []

    def kernel(self, call: int, start: int, end: int, name: int = GEMM, device: int = 0) -> None:
        category = table.COLLECTIVE if name == NCCL else table.KERNEL
        self.activities.append((start, end, device, category, name, len(self.calls)))
        self.calls.append((call, call + 2 * US, LAUNCH, len(self.calls)))

    def copy(self, call: int, start: int, end: int, device: int = 0) -> None:
        self.activities.append((start, end, device, table.COPY, -1, len(self.calls)))
        self.calls.append((call, call + 2 * US, LAUNCH, len(self.calls)))

    def sync(self, start: int, end: int) -> None:
        self.calls.append((start, end, SYNC, -1))

    def table(self, file: str = "profile.sqlite", rank: int | None = None, calls: bool = True) -> DeviceActivity:
        rows = sorted(self.activities)
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        own = np.array(sorted(self.calls) if calls else [], np.int64).reshape(-1, 4).T
        marks = np.array(sorted(self.ranges), np.int64).reshape(-1, 3).T
        copies = columns[3] == table.COPY
        none = np.empty(0, np.int64)
        return DeviceActivity(
            file=file,
            rank=rank,
            start_ns=columns[0],
            end_ns=columns[1],
            device=columns[2].astype(np.int32),
            stream=np.zeros(len(rows), np.int32),
            category=columns[3].astype(np.uint8),
            name=columns[4].astype(np.int32),
            bytes=np.where(copies, 1_000_000, -1),
            direction=np.where(copies, table.TO_DEVICE, 0).astype(np.uint8),
            pageable=copies,
            correlation=columns[5],
            process=np.full(len(rows), 0x1000000),
            call_start_ns=own[0],
            call_end_ns=own[1],
            call_name=own[2].astype(np.int32),
            call_thread=np.full(own.shape[1], THREAD),
            call_correlation=own[3],
            range_start_ns=marks[0],
            range_end_ns=marks[1],
            range_name=marks[2].astype(np.int32),
            range_thread=np.full(marks.shape[1], THREAD),
            system_start_ns=none,
            system_end_ns=none,
            system_name=none.astype(np.int32),
            system_thread=none,
            names=NAMES,
            devices=tuple(Device(int(n), "") for n in np.unique(columns[2])),
            product="2025.1",
            schema="3.20.0",
            absent=(),
            dropped=0,
        )


def answer(*tables: DeviceActivity) -> Answer:
    examiner = DeviceActivities()
    return examiner.examine([examiner.digest(t) for t in tables], None)


def told(given: Answer) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.cause, f.ranks) for f in given.findings]


def queued(count: int = 200, kernel: int = 100 * US, idle: int = US, device: int = 0) -> Recorder:
    """A host that is far ahead: kernels follow each other."""
    r = Recorder()
    for i in range(count):
        start = 1000 * US + i * (kernel + idle)
        r.kernel(i * 5 * US, start, start + kernel, device=device)
    return r


def test_a_busy_gpu_is_healthy():
    given = answer(queued().table())

    assert told(given) == []
    assert given.examined is True
    (shares,) = given.shares
    assert (shares.compute, shares.idle) == pytest.approx((0.990, 0.0099), abs=1e-3)
    assert shares.hidden_communication is None


def test_shares_add_up_and_hidden_communication_is_told():
    r = Recorder()
    for i in range(40):
        at = i * 1000 * US
        r.kernel(at - 500 * US, at, at + 400 * US)
        r.kernel(at - 400 * US, at + 200 * US, at + 600 * US, name=NCCL)
        r.copy(at - 300 * US, at + 500 * US, at + 700 * US)

    (shares,) = answer(r.table()).shares

    assert shares.compute + shares.exposed_communication + shares.exposed_memory + shares.idle == pytest.approx(1)
    assert shares.hidden_communication == pytest.approx(0.5)
    window = 39.7
    assert (shares.compute, shares.exposed_communication, shares.exposed_memory) == pytest.approx(
        (40 * 0.4 / window, 40 * 0.2 / window, 40 * 0.1 / window)
    )


def test_a_gpu_that_waits_for_each_launch_is_launch_bound():
    r = Recorder()
    for i in range(100):
        r.kernel(i * 50 * US, i * 50 * US + 6 * US, i * 50 * US + 16 * US)

    given = answer(r.table())

    assert told(given) == [("launch-bound", (0,))]
    assert given.findings[0].title.startswith("GPU 0 starves: idle 80 % of the time, 40 µs before each launch")
    assert given.findings[0].confidence == 0.8


def test_waits_of_the_host_that_leave_the_gpu_dry_are_host_sync():
    r = Recorder()
    at = 0
    for _ in range(40):
        r.kernel(at, at + 10 * US, at + 110 * US)
        r.sync(at + 5 * US, at + 112 * US)
        at += 250 * US

    given = answer(r.table())

    assert told(given) == [("host-sync", (0,))]
    assert given.findings[0].component == "cudaStreamSynchronize"
    assert "39 times" in given.findings[0].title


def test_a_host_that_loads_data_in_the_gaps_is_named():
    r = Recorder()
    for step in range(20):
        at = step * 2000 * US
        for i in range(5):
            r.kernel(at + i * 5 * US, at + 10 * US + i * 200 * US, at + 10 * US + (i + 1) * 200 * US)
        r.ranges.append((at + 30 * US, at + 1990 * US, LOAD))
        r.ranges.append((at, at + 2000 * US, STEP))

    given = answer(r.table())

    assert told(given) == [("slow-data-loading", (0,))]
    assert "DataLoader.__next__" in given.findings[0].title


def test_a_host_busy_elsewhere_is_placed_by_its_ranges():
    r = Recorder()
    for step in range(20):
        at = step * 2000 * US
        for i in range(5):
            r.kernel(at + i * 5 * US, at + 10 * US + i * 200 * US, at + 10 * US + (i + 1) * 200 * US)
        r.ranges.append((at + 30 * US, at + 2000 * US, STEP))

    given = answer(r.table())

    assert [(f.cause, f.component, f.confidence) for f in given.findings] == [("launch-bound", "step", 0.55)]


def test_copies_that_nothing_hides_are_named_with_their_range():
    r = Recorder()
    for i in range(50):
        at = i * 1000 * US
        r.ranges.append((at - 20 * US, at, OFFLOAD))
        r.copy(at - 10 * US, at, at + 900 * US)
        r.kernel(at - 5 * US, at + 900 * US, at + 1000 * US)

    given = answer(r.table())

    assert [(f.cause, f.phase, f.component) for f in given.findings] == [("slow-code", "transfer", "offload")]
    assert given.findings[0].title == (
        "GPU 0 starves: copies (host to device) take 90 % of the time in offload; kernels run 10 %"
    )
    assert given.findings[0].next[:2] == (
        "pin the host's memory (pin_memory=True) and copy with non_blocking=True",
        "look at what is offloaded to host memory (weights, optimizer state): each pass copies it anew",
    )


def test_communication_counts_without_the_wait_for_the_late():
    def job(wait: int) -> DeviceActivity:
        r = Recorder()
        for device in range(2):
            for i in range(40):
                at = i * 1000 * US
                r.kernel(at - 900 * US, at, at + 300 * US, device=device)
                late = wait if device else 0
                r.kernel(at - 800 * US, at + 300 * US + late, at + 1000 * US, name=NCCL, device=device)
        return r.table()

    assert told(answer(job(0))) == [("communication-bound", (0, 1))]
    assert "communication-bound" not in [cause for cause, _ in told(answer(job(650 * US)))]


def test_without_the_hosts_calls_the_reason_is_left_open():
    r = Recorder()
    for i in range(100):
        r.kernel(0, i * 50 * US, i * 50 * US + 10 * US)

    given = answer(r.table(calls=False))

    assert [(f.cause, f.confidence) for f in given.findings] == [("launch-bound", 0.4)]
    assert given.not_examined == (
        (
            "launch-bound, host-sync, slow-data-loading",
            "calls of the host",
            "none in the file belongs to what ran on GPU 0 of profile.sqlite",
        ),
    )


def test_a_few_activities_are_no_load():
    r = Recorder()
    for i in range(3):
        r.kernel(i * 10_000 * US, i * 10_000 * US + 10 * US, i * 10_000 * US + 20 * US)

    given = answer(r.table())

    assert (told(given), given.examined) == ([], False)
    assert given.not_examined[0][2] == "GPU 0 of profile.sqlite has 3: no load to judge"


def test_only_the_gpu_that_starves_is_named():
    r = queued()
    for i in range(100):
        r.kernel(i * 50 * US, i * 50 * US + 6 * US, i * 50 * US + 16 * US, device=1)

    given = answer(r.table())

    assert [(f.cause, f.ranks, f.all_ranks) for f in given.findings] == [("launch-bound", (1,), False)]


def test_ranks_of_several_files_are_those_of_their_names():
    def starving(file: str, rank: int | None) -> DeviceActivity:
        r = Recorder()
        for i in range(100):
            r.kernel(i * 50 * US, i * 50 * US + 6 * US, i * 50 * US + 16 * US)
        return r.table(file, rank)

    assert told(answer(starving("r4.sqlite", 4), starving("r5.sqlite", 5))) == [("launch-bound", (4, 5))]
    assert told(answer(starving("a.sqlite", None), starving("b.sqlite", None))) == [("launch-bound", ())]


@pytest.mark.parametrize("seed", range(30))
def test_any_table_gives_an_answer(seed):
    chance = np.random.default_rng(seed)
    r = Recorder()
    for _ in range(int(chance.integers(1, 80))):
        start = int(chance.integers(-1000, 10**6))
        r.kernel(int(chance.integers(-(10**6), 10**6)), start, start + int(chance.integers(0, 10**5)),
                 int(chance.integers(0, 2)), int(chance.integers(0, 3)))  # fmt: skip
        if chance.random() < 0.3:
            r.sync(start, start + int(chance.integers(0, 10**5)))
        if chance.random() < 0.3:
            r.ranges.append((start, start + int(chance.integers(0, 10**6)), int(chance.integers(-1, 7))))

    given = answer(r.table(calls=bool(seed % 3)))

    for s in given.shares:
        assert s.compute + s.exposed_communication + s.exposed_memory + s.idle == pytest.approx(1)


def real(data, name: str) -> Answer:
    return answer(*NsightSystems().read(data("nsys") / name))


def test_the_real_gpus_starve(data):
    given = real(data, "h100_2gpu_1s.sqlite")

    (finding,) = given.findings
    assert (finding.severity, finding.ranks, finding.all_ranks) == ("warning", (0, 1), True)
    assert finding.title.startswith("GPUs 0 and 1 starve: copies (host to device) take 95 % of the time")
    assert finding.component == "FSDP::pre_forward (shared)"
    assert finding.evidence[0].value == pytest.approx(44.8, abs=0.05)
    assert [round(s.compute, 4) for s in given.shares] == [0.0231, 0.0232]
    assert all(s.window_us == pytest.approx(960_000, rel=0.011) for s in given.shares)


@pytest.mark.parametrize(("name", "idle"), [("healthy_1pct.sqlite", 0.0099), ("healthy_judged_1pct.sqlite", 0.0094)])
def test_the_healthy_exports_are_healthy(data, name, idle):
    given = real(data, name)

    assert (told(given), given.examined, given.not_examined) == ([], True, ())
    assert given.shares[0].idle == pytest.approx(idle, abs=5e-5)
    assert (given.shares[0].exposed_communication, given.shares[0].hidden_communication) == (0, None)
