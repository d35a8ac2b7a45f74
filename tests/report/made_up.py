"""Made-up reports, as real as they get, one for each kind of verdict."""

from rankscope.base.finding import Cost, Evidence, Finding, Location
from rankscope.report.details import (
    Details,
    Marker,
    Snippet,
    StepTimeline,
    TimelineSpan,
    heat_of,
    step_times_of,
)
from rankscope.report.report import (
    BudgetLine,
    Clock,
    Exit,
    InputFile,
    Lost,
    NotExamined,
    Overhead,
    Report,
    Run,
    Step,
    Trace,
    WhatIf,
)


def run(**fields):
    return Run(
        **{
            "id": "20260301-101500-resnet",
            "name": "resnet50-imagenet",
            "command": ("torchrun", "--nproc-per-node=4", "train.py", "--epochs", "3"),
            "started": "2026-03-01T10:15:00Z",
            "duration_s": 96.4,
            "world_size": 4,
            "nodes": 1,
            "backend": "gloo",
            "steps": 500,
            "fingerprint": "7c1e09",
            "exits": tuple(Exit(rank, 0) for rank in range(4)),
        }
        | fields
    )


def budget(*lines):
    total = sum(ms for _, _, ms in lines)
    return tuple(BudgetLine(phase, rank, ms, ms / total) for phase, rank, ms in lines)


CLOCK = Clock("one monotonic clock", 0.4)
OVERHEAD = Overhead(0.006, 0.01, "bare steps in between")
LOST = Lost(0)
NO_GPU = (
    NotExamined("slow-device", "device times", "the run used no CUDA device"),
    NotExamined("launch-bound", "device times", "the run used no CUDA device"),
    NotExamined("memory-fragmentation", "allocator statistics", "the CPU allocator keeps none"),
)

HEALTHY = Report(
    run(),
    "healthy",
    (),
    Step(
        128.4,
        131.9,
        480,
        budget(
            ("forward", 0, 40.1),
            ("backward", 2, 61.7),
            ("communication", 1, 14.2),
            ("optimizer", 3, 9.8),
            ("data", 0, 1.6),
            ("other", 0, 1.2),
        ),
    ),
    WhatIf(1.02, {0: 1.004, 1: 1.003, 2: 1.011, 3: 1.002}, None, {"all_reduce": 1.003}),
    not_examined=NO_GPU,
    clock=CLOCK,
    overhead=OVERHEAD,
    lost=LOST,
)

SLOW_LOADING = Report(
    run(),
    "degraded",
    (
        Finding(
            cause="slow-data-loading",
            severity="warning",
            confidence=0.93,
            title="JpegDataset.__getitem__ on ranks 2-3 decodes every image twice and costs 58 ms of every step",
            ranks=(2, 3),
            all_ranks=False,
            phase="data",
            component="JpegDataset.__getitem__",
            location=Location("/home/ana/projects/imagenet/loaders/jpeg_dataset.py", 41, "__getitem__"),
            first_step=0,
            last_step=499,
            cost=Cost(58.2, 0.312, 0.29),
            evidence=(
                Evidence("wait for the next batch, median", 61.4, "ms", (2, 3)),
                Evidence("the same wait on the other ranks", 1.3, "ms", (0, 1)),
                Evidence("samples of the loader workers' stacks that are inside line 41", 0.71, "share", (2, 3)),
                Evidence("loader workers", 2, "count", (2, 3)),
            ),
            explains=("f2",),
            next=(
                "decode once: keep the image that `verify()` has opened instead of opening it again in line 41",
                "raise num_workers from 2 to 5, as on ranks 0 and 1",
                "see `rankscope causes slow-data-loading`",
            ),
            id="f1",
        ),
        Finding(
            cause="communication-bound",
            severity="info",
            confidence=0.6,
            title="ranks 0 and 1 wait 57 ms of every step in all_reduce for ranks 2 and 3",
            ranks=(),
            all_ranks=True,
            phase="communication",
            component="all_reduce",
            location=None,
            first_step=0,
            last_step=499,
            cost=Cost(None, None, None),
            evidence=(Evidence("wait in all_reduce, median", 57.1, "ms", (0, 1)),),
            id="f2",
        ),
        Finding(
            cause="gc-pause",
            severity="info",
            confidence=0.8,
            title="garbage collection stops rank 0 for 2.1 ms about every ninth step",
            ranks=(0,),
            all_ranks=False,
            phase="other",
            component=None,
            location=None,
            first_step=8,
            last_step=494,
            cost=Cost(0.23, 0.0012, 0.001),
            evidence=(Evidence("pause of generation 2, median", 2100, "us", (0,)),),
            next=("call gc.freeze() after the first step",),
            id="f3",
        ),
    ),
    Step(
        184.9,
        203.0,
        480,
        budget(
            ("backward", 2, 61.5),
            ("forward", 2, 40.3),
            ("data", 3, 31.6),
            ("data", 2, 26.6),
            ("communication", 1, 14.0),
            ("optimizer", 3, 9.9),
            ("other", 0, 1.7),
            ("data", 0, 0.9),
        ),
    ),
    WhatIf(1.41, {0: 1.0, 1: 1.0, 2: 1.15, 3: 1.18}, None, {"data": 1.4}),
    not_examined=NO_GPU,
    clock=CLOCK,
    overhead=OVERHEAD,
    lost=Lost(312, "ring of rank 2 overrun"),
)

SLOW_LINK = Report(
    run(name="gpt-small", world_size=2, exits=(Exit(0, 0), Exit(1, 0)), nodes=2, steps=220),
    "degraded",
    (
        Finding(
            cause="slow-link",
            severity="critical",
            confidence=0.88,
            title="the network path of rank 1 moves 94 MB/s where its peer's moves 1.1 GB/s; 212 ms of every step",
            ranks=(1,),
            all_ranks=False,
            phase="communication",
            component="all_reduce",
            location=Location("train.py", 88, "train_step"),
            first_step=61,
            last_step=219,
            cost=Cost(212.0, 0.63, 0.58),
            evidence=(
                Evidence("transfer rate of all_reduce", 94.2, "MB/s", (1,)),
                Evidence("retransmitted segments during the run", 18234, "count", (1,)),
            ),
            next=("check the cable and the port of node-b: it negotiated 1 Gbit/s",),
            id="f1",
        ),
    ),
    Step(336.0, 391.0, 200, budget(("communication", 1, 215.2), ("backward", 0, 70.4), ("forward", 1, 50.6))),
    WhatIf(2.4, {0: 1.0, 1: 2.38}, None, None, 0.98, None),
    clock=Clock("pings and collectives", 41.0),
    overhead=Overhead(None, 0.01, "too few bare steps"),
    lost=Lost(0),
)

CHECKPOINT_STALL = Report(
    run(name="vit-base", world_size=2, exits=(Exit(0, 0), Exit(1, 0))),
    "degraded",
    (
        Finding(
            cause="checkpoint-stall",
            severity="warning",
            confidence=0.97,
            title="save_checkpoint on rank 0 stops all ranks for 4.1 s every 100 steps",
            ranks=(0,),
            all_ranks=False,
            phase="checkpoint",
            component="save_checkpoint",
            location=Location("train.py", 132, "save_checkpoint"),
            first_step=100,
            last_step=400,
            cost=Cost(41.3, 0.22, 0.215),
            evidence=(Evidence("time in save_checkpoint, median", 4130, "ms", (0,)),),
            explains=("f2",),
            next=("save asynchronously: `torch.distributed.checkpoint.async_save`",),
            id="f1",
        ),
        Finding(
            cause="slow-storage",
            severity="warning",
            confidence=0.7,
            title="while the checkpoint is written, reads of the loader on rank 0 take 9x as long",
            ranks=(0,),
            all_ranks=False,
            phase="data",
            component=None,
            location=None,
            first_step=100,
            last_step=403,
            cost=Cost(1.9, 0.01, None),
            evidence=(Evidence("time of a read, median", 9.2, "x", (0,)),),
            id="f2",
        ),
    ),
    Step(140.1, 171.0, 480, budget(("checkpoint", 0, 41.3), ("backward", 1, 80.2), ("forward", 1, 66.5))),
    clock=CLOCK,
    overhead=OVERHEAD,
    lost=LOST,
)

FAILED = Report(
    run(
        duration_s=412.0,
        steps=212,
        exits=(Exit(0, 1), Exit(1, None, "SIGKILL"), Exit(2, 1), Exit(3, 1)),
    ),
    "failed",
    (
        Finding(
            cause="dead-rank",
            severity="critical",
            confidence=0.99,
            title="rank 1 was killed (SIGKILL) at step 211 while its memory was at the limit of the job",
            ranks=(1,),
            all_ranks=False,
            phase="backward",
            component=None,
            location=None,
            first_step=211,
            last_step=211,
            cost=Cost(None, None, None),
            evidence=(
                Evidence("memory of the job's cgroup at the last sample", 68_400_000_000, "bytes", (1,)),
                Evidence("it ended before the first error of a peer by", 1.8, "s", (1,)),
            ),
            explains=("f2",),
            next=("raise the memory limit of the job above 64 GiB, or lower num_workers on node 0",),
            id="f1",
        ),
        Finding(
            cause="network-error",
            severity="critical",
            confidence=0.9,
            title="ranks 0, 2 and 3 lost their connection to rank 1",
            ranks=(1,),
            all_ranks=False,
            phase="communication",
            component="all_reduce",
            location=None,
            first_step=211,
            last_step=211,
            cost=Cost(None, None, None),
            evidence=(Evidence("ranks that report 'Connection closed by peer'", 3, "count", (0, 2, 3)),),
            id="f2",
        ),
    ),
    Step(128.4, 131.9, 200, HEALTHY.step.budget),
    clock=CLOCK,
    overhead=OVERHEAD,
    lost=LOST,
)

NOT_EXAMINED = Report(
    Run("dump", steps=None),
    "not-examined",
    files=(
        InputFile(
            "artefacts/2026-03-01/very/long/path/to/a/folder/with/rank0.pt.trace.json.gz",
            "kineto",
            False,
            "the file ends after 12,288 bytes inside a string: it was cut off while it was written",
        ),
        InputFile("notes.txt", "unknown", False, "holds no line that a training job writes"),
    ),
    not_examined=(NotExamined("slow-device", "kernel times of two ranks or more", "no usable trace"),),
)

IMPORTED = Report(
    Run("traces", "two traces", world_size=2),
    "healthy",
    traces=(
        Trace("traces/rank0.json.gz", 0, 1_204_310.0, 0.71, 0.18, 0.01, 0.10, 0.62),
        Trace("traces/rank1.json.gz", 1, 1_204_100.5, 0.70, 0.19, 0.01, 0.10, None),
    ),
    files=(InputFile("traces/rank0.json.gz", "kineto", True), InputFile("traces/rank1.json.gz", "kineto", True)),
)

REPORTS = {
    "healthy": HEALTHY,
    "slow-loading": SLOW_LOADING,
    "slow-link": SLOW_LINK,
    "checkpoint-stall": CHECKPOINT_STALL,
    "failed": FAILED,
    "not-examined": NOT_EXAMINED,
    "imported": IMPORTED,
}

_SOURCE = """    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as probe:
            probe.verify()
        image = self.transform(Image.open(path).convert("RGB"))
        if image.shape[0] < 3:
            raise ValueError(f"{path}: {image.shape[0]} channels, need 3")
        return image, self.labels[index]
"""


def _step_spans(data_ms, ranks=4):
    """One step: data, forward, backward with two all_reduces that wait for the slowest rank, optimizer."""
    spans = []
    ready = max(data_ms[rank] + 41 for rank in range(ranks))
    slowest = max(range(ranks), key=lambda rank: data_ms[rank])
    for rank in range(ranks):
        on_path = rank == slowest
        data, forward = data_ms[rank] * 1e3, 40_000 + rank * 300
        spans.append(TimelineSpan(rank, 0, data, "data", "next(loader)", "work", on_path))
        spans.append(TimelineSpan(rank, data, 700, "transfer", "batch.to(device)", "work", on_path))
        spans.append(TimelineSpan(rank, data + 700, forward, "forward", "ResNet.forward", "work", on_path))
        at = data + 700 + forward
        spans.append(TimelineSpan(rank, at, 34_000, "backward", "layer4 … layer2", "work", on_path))
        at += 34_000
        arrive = ready * 1e3 + 700 + 34_900
        spans.append(TimelineSpan(rank, at, arrive - at, "communication", "all_reduce bucket 1", "wait"))
        spans.append(
            TimelineSpan(rank, arrive, 7_000, "communication", "all_reduce bucket 1", "communication", on_path)
        )
        at = arrive + 7_000
        spans.append(TimelineSpan(rank, at, 27_500, "backward", "layer1, stem", "work", on_path))
        at += 27_500
        spans.append(TimelineSpan(rank, at, 7_000, "communication", "all_reduce bucket 2", "communication", on_path))
        spans.append(TimelineSpan(rank, at + 7_000, 9_800, "optimizer", "SGD.step", "work", on_path))
    return tuple(spans)


def _wobble(rank, step):
    return ((step * 7919 + rank * 104_729) % 97) / 97


DETAILS = Details(
    steps=(
        StepTimeline(317, "slowest", 1_000_000_000, _step_spans((2.0, 1.4, 84.0, 96.5))),
        StepTimeline(120, "typical", 500_000_000, _step_spans((1.2, 1.3, 55.0, 61.0))),
    ),
    heat=heat_of(
        range(4),
        range(500),
        [
            [
                None
                if rank == 1 and 200 <= step < 214
                else (1.2 + _wobble(rank, step) if rank < 2 else 52 + 12 * _wobble(rank, step) + 30 * (step % 83 == 65))
                for step in range(500)
            ]
            for rank in range(4)
        ],
        "time in the data phase",
    ),
    sources={"/home/ana/projects/imagenet/loaders/jpeg_dataset.py": (Snippet(34, tuple(_SOURCE.splitlines())),)},
    step_ms=step_times_of(
        range(500),
        {
            rank: [180 + 10 * _wobble(9, step) + rank * 0.4 + 36 * (step % 83 == 65) for step in range(500)]
            for rank in range(4)
        },
    ),
    markers=(Marker(167, "epoch 1"), Marker(334, "epoch 2")),
)
