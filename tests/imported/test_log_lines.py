"""What began it and what only followed, from logs as the programs write them (made up, after the real formats)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.log_lines import LogLines
from rankscope.artefacts.readers.logs import Logs
from rankscope.records.imported import log_lines


@pytest.fixture
def examined(tmp_path):
    def examine(*texts: str, world_size: int | None = None, names: tuple[str, ...] = ()) -> Answer:
        examiner, digests = LogLines(), []
        for number, text in enumerate(texts):
            path = tmp_path / (names[number] if names else f"job_{'abcdefgh'[number]}.txt")
            path.write_text(text, encoding="utf-8")
            digests += [examiner.digest(t) for t in Logs().read(path) if isinstance(t, log_lines.LogLines)]
        return examiner.examine(digests, world_size)

    return examine


def shown(answer: Answer) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.cause, f.ranks) for f in answer.findings if f.severity == "critical"]


TORCHRUN = """\
E0703 10:00:{at}.123000 4242 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: {rank} (pid: {pid}) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/usr/local/lib/python3.11/site-packages/torch/distributed/run.py", line 900, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-07-03_10:00:{at}
  host      : node1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : {why}
============================================================
"""  # noqa: E501
WATCHDOG = (
    "[rank{rank}]:[E703 10:10:0{rank}.1 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600029 "
    "milliseconds before timing out.\n"
)
SINCE_27 = (
    "[rank{rank}]:[E703 10:10:00.2 ProcessGroupNCCL.cpp:2241] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure "
    "detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: "
    "{completed}\n"
)


def traceback(prefix: str, error: str, line: int = 41) -> str:
    rows = (
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 90, in <module>',
        "    main()",
        f'  File "/home/me/train.py", line {line}, in train_step',
        "    loss = model(x)",
        '  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl',
        "    return forward_call(*args, **kwargs)",
        error,
    )
    return "".join(f"{prefix}{row}\n" for row in rows)


@pytest.mark.parametrize("prefix", ["[rank2]: ", "2: ", "[1,2]<stderr>:", "[rank2]:[2024-07-03 10:00:00,123] "])
def test_an_exception_of_one_rank_comes_before_what_its_peers_report(examined, prefix):
    peers = "".join(
        f"[rank{r}]: Traceback (most recent call last):\n"
        f'[rank{r}]:   File "/home/me/train.py", line 44, in train_step\n'
        f"[rank{r}]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1234\n"
        for r in (0, 1)
    )

    answer = examined(traceback(prefix,
        "KeyError: 'labels'") + peers + TORCHRUN.format(rank=0, code=1, pid=7, at=10, why="x"))

    assert shown(answer) == [("rank-exception", (2,))]
    assert answer.findings[0].location.line == 41
    assert answer.findings[0].location.function == "train_step"


def test_tracebacks_of_ranks_between_one_another_are_told_apart(examined):
    a = traceback("[rank0]: ", "ValueError: bad", 41).splitlines(keepends=True)
    b = traceback("[rank1]: ", "KeyError: 'x'", 52).splitlines(keepends=True)

    answer = examined("".join(line for pair in zip(a, b, strict=True) for line in pair))

    assert [(f.cause, f.ranks, f.location.line) for f in answer.findings] == [
        ("rank-exception", (0,), 41), ("rank-exception", (1,), 52),
    ]  # fmt: skip


def test_the_memory_killer_gets_the_rank_of_the_process_that_it_killed(examined):
    kernel = "[Wed Jul  3 10:00:05 2024] Out of memory: Killed process 777 (python) total-vm:99kB, anon-rss:98kB\n"

    answer = examined(kernel, TORCHRUN.format(rank=1, code=-9, pid=777, at="08", why="Signal 9 (SIGKILL) received by "
                                                                                     "PID 777"))

    assert shown(answer) == [("out-of-memory", (1,))]


def test_a_killed_process_without_a_reason_is_a_dead_rank(examined):
    answer = examined(TORCHRUN.format(rank=3, code=-9, pid=778, at="08", why="Signal 9 (SIGKILL) received by PID 778"))

    assert shown(answer) == [("dead-rank", (3,))]


@pytest.mark.parametrize(
    ("line", "cause", "rank"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
         "out-of-memory", ()),
        ("srun: error: node7: task 3: Killed", "dead-rank", (3,)),
        ("srun: error: node7: task 5: Out Of Memory", "out-of-memory", (5,)),
        ("worker-1: [2024-07-03 10:00:00,100] [ERROR] ['python', '-u', 'train.py', '--local_rank=3'] exits with return "
         "code = -9", "dead-rank", (3,)),
        ("[rank0]: Error: failed to extend /dev/shm/nccl-xyz to 9637892 bytes", "shared-memory-exhausted", (0,)),
        ("srun: error: node7: task 2: Segmentation fault (core dumped)", "dead-rank", (2,)),
        ("    Reason:       OOMKilled", "out-of-memory", ()),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off "
         "the bus.",
         "hardware-error", ()),
        ("[12345.678901] NVRM: Xid (PCI:0000:3b:00): 48, pid=77, name=python, DBE", "hardware-error", ()),
        ("[12345.678901] mlx5_core 0000:1b:00.0: Port 1 link down", "network-error", ()),
        ("node1:77:99 [3] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error", "network-error", (3,)),
        ("../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [1,0,0], thread: [3,0,0] "
         "Assertion "
         "`srcIndex < srcSelectDimSize` failed.", "index-out-of-range", ()),
        ("[rank1]: Parameter indices which did not receive grad for rank 1: 4 5", "unused-parameters", (1,)),
        ("[rank1]: Parameters which did not receive grad for rank 1: head.weight, "
         "head.bias", "unused-parameters", (1,)),
        ("[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already "
         "in use).",
         "rendezvous-failure", ()),
        ("Fatal Python error: Segmentation fault", "dead-rank", ()),
        ("[rank5]: RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th "
         "output.", "nan-from-operation", (5,)),
    ],
)  # fmt: skip
def test_one_line_is_enough(examined, line, cause, rank):
    assert shown(examined(line + "\n")) == [(cause, rank)]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
         "79.15 GiB of "
         "which 1.20 GiB is free. Of the allocated memory 76.00 GiB is allocated by PyTorch, and 500.00 MiB is "
         "reserved by "
         "PyTorch but unallocated.", "out-of-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
         "79.15 GiB of "
         "which 1.20 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 16.00 GiB is "
         "reserved by "
         "PyTorch but unallocated.", "memory-fragmentation"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.10 GiB "
         "already "
         "allocated; 9.00 MiB free; 6.11 GiB reserved in total by PyTorch)", "out-of-memory"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "out-of-memory"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's "
         "workers are "
         "out of shared memory.", "shared-memory-exhausted"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.", "out-of-memory"),
        ("IndexError: Target 10 is out of bounds.", "index-out-of-range"),
        ("IndexError: index out of range in self", "index-out-of-range"),
        ("ValueError: Expected input batch_size (32) to match target batch_size (31).", "batch-shape-mismatch"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x10 and 12x4)", "rank-exception"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware-error"),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
         "EADDRINUSE: address already in use", "rendezvous-failure"),
    ],
)  # fmt: skip
def test_an_exception_says_its_cause(examined, error, cause):
    assert shown(examined(traceback("[rank1]: ", error))) == [(cause, (1,))]


def test_the_error_of_a_loader_worker_is_that_of_the_dataset(examined):
    text = traceback("", "RuntimeError: Caught IndexError in DataLoader worker process 0.") + (
        "Original Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 309, in _worker_loop\n'
        '  File "/home/me/data.py", line 12, in __getitem__\n'
        "IndexError: list index out of range\n"
    )

    answer = examined(text)

    assert shown(answer) == [("rank-exception", ())]
    assert answer.findings[0].location.file == "/home/me/data.py"


def test_a_rank_whose_watchdog_is_silent_was_elsewhere(examined):
    answer = examined("".join(WATCHDOG.format(rank=r, seq=12, op="ALLREDUCE", n=64) for r in (0, 1, 3)), world_size=4)

    assert shown(answer) == [("stuck-rank", (2,))]


def test_a_silent_rank_that_went_on_writing_was_busy(examined):
    text = "[rank2]:[2024-07-03 10:05:00,000] evaluating, 4000 of 9000\n"
    stamped = "".join(WATCHDOG.format(rank=r, seq=12, op="ALLREDUCE", n=64) for r in (0, 1, 3))

    answer = examined(text + stamped.replace(
        "[E703", "[2024-07-03").replace(" ProcessGroup", "] ProcessGroup"), world_size=4)

    assert shown(answer) == [("slow-rank-timeout", (2,))]


def test_a_rank_behind_left_out_a_collective(examined):
    text = "".join(
        SINCE_27.format(rank=r, seq=12, enqueued=11 if r == 1 else 13, completed=11) for r in range(4)
    )  # fmt: skip

    assert shown(examined(text, world_size=4)) == [("missing-collective", (1,))]


def test_a_rank_that_only_got_the_signal_of_the_others_was_elsewhere(examined):
    signal = (
        "[rank3]:[E703 10:10:06.1 ProcessGroupNCCL.cpp:1535] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump "
        "signal due to a collective timeout from  rank 0. Last enqueued NCCL work: 56, last completed NCCL work: 56.\n"
    )
    text = "".join(SINCE_27.format(rank=r, seq=57, enqueued=58, completed=56) for r in range(3)) + signal

    assert shown(examined(text)) == [("stuck-rank", (3,))]


def test_what_torchrun_calls_the_root_cause_may_be_the_first_victim(examined):
    memory = traceback("[rank1]: ", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    late = WATCHDOG.format(rank=0, seq=12, op="ALLREDUCE", n=64)
    table = TORCHRUN.format(rank=0, code=-6, pid=7, at=10, why="Signal 6 (SIGABRT) received by PID 7")

    assert shown(examined("step 1 loss 2\n" + memory + "step 2 loss 2\n" + late + table)) == [("out-of-memory", (1,))]


def test_another_operation_at_the_same_number_is_a_wrong_order(examined):
    ops = ("ALLREDUCE", "ALLREDUCE", "BROADCAST", "ALLREDUCE")
    text = "".join(WATCHDOG.format(rank=r, seq=12, op=op, n=64) for r, op in enumerate(ops))

    assert shown(examined(text, world_size=4)) == [("collective-order-mismatch", (2,))]


def test_an_exception_before_the_timeout_is_its_reason(examined):
    own = traceback("[rank2]:[2024-07-03 10:00:00,123] ", "ValueError: bad")
    late = "".join(WATCHDOG.format(rank=r, seq=12, op="ALLREDUCE", n=64) for r in (0, 1, 3))

    assert shown(examined(own + late, world_size=4)) == [("rank-exception", (2,))]


def test_a_file_a_rank_says_who_began_it(examined):
    first = traceback("", "KeyError: 'abc'")
    second = traceback("", "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1")

    assert shown(examined(second, first, names=("rank0.log", "rank1.log"))) == [("rank-exception", (1,))]


MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {a} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=5, OpType={op_a}, TensorShape=[20]), but Rank {b} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=5, OpType={op_b}, TensorShape=[20])"
)


def test_of_ranks_that_call_different_operations_the_one_that_differs_from_all_others_is_named(examined):
    odd = MISMATCH.format(a=0, b=2, op_a="ALLREDUCE", op_b="BROADCAST")
    other = MISMATCH.format(a=1, b=2, op_a="ALLREDUCE", op_b="BROADCAST")

    assert shown(examined(traceback("[rank0]: ", odd))) == [("collective-order-mismatch", (0, 2))]
    assert shown(examined(traceback("[rank0]: ", odd) + traceback("[rank1]: ", other))) == [
        ("collective-order-mismatch", (2,)),
    ]  # fmt: skip


def test_before_torch_2_a_watchdog_gave_no_number(examined):
    line = (
        "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804437 milliseconds before timing out.\n"
    )
    table = TORCHRUN.format(rank=0, code=-6, pid=7, at=10, why="Signal 6 (SIGABRT) received by PID 7")

    assert shown(examined("".join(line.format(r) for r in (0, 1, 3)) + table)) == [("stuck-rank", (2,))]


def test_what_the_threads_of_pytorch_write_is_no_work_of_a_rank(examined):
    late = "".join(SINCE_27.format(rank=r, seq=57, enqueued=58, completed=56) for r in (0, 1, 3))
    stamp = "[rank2]:[E703 10:10:01.3 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 2] "
    signal = stamp + "Received a dump signal due to a collective timeout from  rank 0.\n"
    stamped = "".join(WATCHDOG.format(rank=r, seq=57, op="ALLREDUCE", n=64) for r in (0, 1, 3))

    assert shown(examined(late + stamped + signal)) == [("stuck-rank", (2,))]


def test_gloo_has_no_watchdog_but_its_ranks_say_that_they_waited(examined):
    error = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"

    answer = examined("".join(traceback(f"[rank{r}]: ", error + " to complete") for r in (0, 1, 3)))

    assert shown(answer) == [("stuck-rank", (2,))]


def test_ranks_that_end_because_they_lost_their_peers_began_nothing(examined):
    error = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:39422"
    lost = "".join(traceback(f"[rank{r}]: ", error) for r in (0, 1, 3))
    table = TORCHRUN.format(rank=1, code=1, pid=7, at=10, why="x")

    answer = examined(lost + table, world_size=4)

    assert shown(answer) == [("dead-rank", (2,))]
    assert answer.findings[0].location is None
    assert shown(examined(lost + table, world_size=16)) == [("network-error", ())]


@pytest.mark.parametrize(
    "line",
    [
        "[E ProcessGroupGloo.cpp:138] [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 30000 ms",
        "[E ProcessGroupGloo.cpp:75] Rank 2 failed to pass monitoredBarrier in 30000 ms\n"
        "[E ProcessGroupGloo.cpp:75] Rank 3 failed to pass monitoredBarrier in 9 ms",
    ],
)
def test_who_did_not_come_to_a_monitored_barrier_is_named(examined, line):
    own = traceback("[rank0]: ", "RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 30000 ms")

    assert shown(examined(line + "\n" + own)) == [("missing-collective", (2, 3))]


def test_a_stuck_watchdog_is_a_stuck_rank(examined):
    stamp = "[rank2]:[E703 10:10:00.2 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank 2] "
    text = stamp + "ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress\n"

    assert shown(examined(text)) == [("stuck-rank", (2,))]


def test_who_gets_more_than_it_expects_is_not_who_sent_it(examined):
    text = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 18 vs 16\n"
    )

    assert shown(examined(text + TORCHRUN.format(rank=2, code=-6, pid=7, at=10, why="x"))) == [
        ("collective-shape-mismatch", ()),
    ]  # fmt: skip


LOADER = """Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 113, in get
    raise Empty
_queue.Empty

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/me/train.py", line 41, in train_step
    for batch in loader:
  File "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1146, in _try_get_data
    raise RuntimeError(text) from e
RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly
"""


def test_an_empty_queue_is_not_why_a_loader_has_no_batch(examined):
    answer = examined("".join(f"[rank1]: {line}\n" for line in LOADER.splitlines()))

    assert shown(answer) == [("dead-rank", (1,))]
    assert answer.findings[0].location.line == 41


@pytest.mark.parametrize(
    ("before", "each"),
    [
        ("", "(RayTrainWorker pid=1234, ip=10.0.0.3) {}"), ("", "[pod/trainer-3/pytorch] {}"), ("", "worker-3: {}"),
        ("", "trainer-1  | {}"), ("", "2024-07-03T10:00:00.123456789Z stderr F {}"),
        ("", "Jul 03 10:00:00 node1 torchrun[77]: {}"),
    ],
)  # fmt: skip
def test_what_launchers_put_before_a_line_hides_no_traceback(examined, before, each):
    rows = traceback("", "ValueError: bad sample").splitlines()

    (finding,) = examined(before + "".join(each.format(row) + "\n" for row in rows)).findings

    assert (finding.cause, finding.location.line, finding.location.function) == ("rank-exception", 41, "train_step")


def test_lines_inside_of_json_are_lines(examined):
    rows = traceback("", "ValueError: bad sample")
    docker = "".join(
        json.dumps({"log": row, "stream": "stderr", "time": "2024-07-03T10:00:00Z"}) + "\n"
        for row in rows.splitlines(keepends=True)
    )
    logger = json.dumps({"time": "2024-07-03T10:00:00Z", "rank": 3, "msg": "failed", "exc_info": rows}) + "\n"

    assert [f.location.line for f in examined(docker).findings] == [41]
    assert shown(examined(logger)) == [("rank-exception", (3,))]


RICH = """╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/me/train.py:90 in <module>                                             │
│ ❱ 90     main()                                                              │
│ /home/me/train.py:41 in train_step                                           │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: bad
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/home/me/train.py", line 90, in <module>
  |     main()
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/me/train.py", line 41, in train_step
    |     raise ValueError("bad")
    | ValueError: bad
    +------------------------------------
"""


@pytest.mark.parametrize("text", [RICH, GROUP])
def test_tracebacks_in_other_dress(examined, text):
    (finding,) = examined(text).findings

    assert (finding.title, finding.location.line) == ("a rank: raised ValueError: bad in train_step (train.py:41)", 41)


def test_processes_that_torch_multiprocessing_made_have_numbers(examined):
    spawn = "torch.multiprocessing.spawn."
    killed = traceback("", spawn + "ProcessExitedException: process 1 terminated with signal SIGKILL")
    raised = (
        traceback("", spawn + "ProcessRaisedException: ")
        + "\n-- Process 2 terminated with the following error:\n" + traceback("", "ValueError: bad")
    )  # fmt: skip

    assert shown(examined(killed)) == [("dead-rank", (1,))]
    assert shown(examined(raised)) == [("rank-exception", (2,))]


def test_a_traceback_inside_of_the_table_is_of_its_rank(examined):
    table = TORCHRUN.format(rank=9, code=1, pid=201, at="03", why="Traceback (most recent call last):\n"
        '    File "/home/me/train.py", line 12, in main\n'
        '      raise RuntimeError("bad data")\n'
        "  RuntimeError: bad data")  # fmt: skip

    (finding,) = examined(table).findings

    assert (finding.cause, finding.ranks, finding.location.line) == ("rank-exception", (9,), 12)


def test_a_job_that_somebody_ended_is_no_failure_of_a_rank(examined):
    by_hand = traceback("[rank0]: ", "KeyboardInterrupt") + traceback(
        "", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 99 got signal: 2")  # fmt: skip
    cancelled = "step 5 loss 2.0\nslurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2024-07-03T10:00:00 ***\n"

    assert examined(by_hand).findings == ()
    assert [(f.severity, f.ranks) for f in examined(cancelled).findings] == [("warning", ())]


def test_a_store_that_has_gone_at_the_end_of_a_job_is_nothing(examined):
    stamp = "[rank1]:[W703 10:05:00.0 TCPStore.cpp:106] [c10d] "
    text = stamp + "sendBytes failed on SocketImpl(fd=5, addr=[localhost]:587, remote=[localhost]:29500): Broken pipe\n"

    assert examined(HEALTHY + text).findings == ()


def test_stamps_without_a_year_are_of_the_year_of_the_others(examined):
    first = traceback("[rank2]:[E703 10:09:00.1 x.cpp:1] ", "ValueError: bad")
    later = traceback("[rank1]:[2024-07-03 10:09:30,000] ", "KeyError: 'x'")

    assert [f.ranks for f in examined(later + first).findings] == [(2,), (1,)]


HEALTHY = "".join(f"[2024-07-03 10:00:{s:02d},000] [INFO] step {s} loss {2 - s * 0.01:.3f}\n" for s in range(40))


@pytest.mark.parametrize(
    "line",
    [
        "W0703 10:00:00.1 4242 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each "
        "process",
        "Consider setting NCCL_DEBUG=INFO to debug. If you see CUDA out of memory, lower the batch size",
        "train.py:3: FutureWarning: torch.cuda.amp.GradScaler is deprecated",
        "[W reducer.cpp:1389] Warning: find_unused_parameters=True was specified in DDP constructor, but did not "
        "find any unused",
        "node1:77:99 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
        "NCCL version 2.21.5+cuda12.4",
        "checkpoint upload failed: Connection reset by peer, retrying (attempt 1 of 5)",
        "ECC errors: 0 corrected, 0 uncorrectable",
    ],
)  # fmt: skip
def test_advice_is_never_a_cause(examined, line):
    assert examined(HEALTHY + line + "\n" + HEALTHY.replace("10:00", "10:01")).findings == ()
    assert examined(line + "\n" + HEALTHY).findings == ()


def test_an_error_that_training_survived_is_none(examined):
    more = "".join(f"[2024-07-03 10:01:{s:02d},000] [INFO] step {s} loss 1.5\n" for s in range(40, 60))

    assert examined(HEALTHY + traceback("", "OSError: upload of metrics failed") + more).findings == ()


def test_a_few_steps_show_a_jump_of_the_loss(examined):
    losses = (2.776, 2.773, 2.768, 7.344, 8.716, 7.654)
    text = "".join(f" iteration {29000 + i * 10}/ 300000 | lm loss: {x:E} | loss scale: 8192.0 "
                   f"|\n" for i, x in enumerate(losses))

    found = examined(text).findings

    assert [(f.cause, f.first_step) for f in found] == [("loss-spike", 29030)]


def test_real_logs_say_what_their_chronicle_says(data):
    examiner = LogLines()

    def causes(name: str) -> list[str]:
        tables = [t for t in Logs().read(Path(data(f"logs/{name}"))) if isinstance(t, log_lines.LogLines)]
        return [f.cause for f in examiner.examine([examiner.digest(t) for t in tables], None).findings]

    assert causes("driver/kmsg.1.log") == []
    assert causes("driver/kmsg.2.peermem.log") == ["hardware-error"]
    assert causes("driver/dmesg.decode.iso.log") == ["dead-rank"]
    assert causes("driver/memory-dmesg.decode.iso.log") == ["hardware-error", "out-of-memory"]
    assert causes("training/events_0.log") == []
    assert causes("training/training.log") == ["rank-exception"]
    assert causes("chronicles/tr1-13B-base-chronicles.md")[:2] == ["shared-memory-exhausted", "hardware-error"]
    assert causes("chronicles/chronicles.md") == ["loss-spike"]
