"""Which lines of a text are kept, and what stands before them."""

from __future__ import annotations

import gzip
import os
import time

import pytest

from rankscope.artefacts.logs.messages import events
from rankscope.artefacts.logs.prefixes import split
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.logs import MOST_ALIKE, Logs
from rankscope.records.imported import log_lines
from rankscope.records.imported.scalar_log import ScalarLog


def written(tmp_path, text, name="job.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path):
    return next(iter(Logs().read(path)))


@pytest.mark.parametrize(
    ("line", "rank", "seconds", "message"),
    [
        ("[rank3]: hello", 3, None, "hello"),
        ("[rank3]:[E1201 10:34:54.5 ProcessGroupNCCL.cpp:629] hello", 3, 975_666_894.5, "hello"),
        ("2: [rank7]: hello", 7, None, "hello"),
        ("[rank3]:[E703 10:34:54.5 ProcessGroupNCCL.cpp:629] hello", 3, 962_620_494.5, "hello"),
        ("(RayTrainWorker pid=12, ip=10.0.0.3) [rank3]: hello", 3, None, "hello"),
        ("2024-07-03T19:15:16.25Z stderr F [rank3]: hello", 3, 1_720_034_116.25, "hello"),
        ("conv1: hello", None, None, "conv1: hello"),
        ("[1,4]<stderr>:hello", 4, None, "hello"),
        ("2024-07-03 19:15:16,250 hello", None, 1_720_034_116.25, "hello"),
        ("[2024-07-03T19:15:16+02:00] hello", None, 1_720_026_916.0, "hello"),
        ("kern  :warn  : 2025-01-21T04:41:44,500000+00:00 hello", None, 1_737_434_504.5, "hello"),
        ("[Tue Jan 21 04:41:44 2025] hello", None, 1_737_434_504.0, "hello"),
        ("Jan 21 04:41:44 node1 kernel: hello", None, 948_429_704.0, "hello"),
        ("6,3973,227996636,-;hello", None, None, "hello"),
        ("[12345.678901] hello", None, None, "hello"),
    ],
)
def test_prefixes(line, rank, seconds, message):
    found = split(line)

    assert (found.rank, found.message) == (rank, message)
    assert found.time_ns == (None if seconds is None else int(seconds * 1000) * 10**6)


def test_a_timeout_has_its_number_operation_and_group():
    line = (
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, "
        "OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600029 milliseconds"
    )

    (one,) = events(line, 1)

    assert (one.kind, one.number, one.name, one.elements, one.timeout_ms) == ("watchdog", 12, "ALLREDUCE", 64, 600_000)
    assert (one.rank, one.group) == (3, "0")


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        (" iteration     6502/  159576 | elapsed time per iteration (ms): 31074.1 | lm loss: 3.876781E+00 | loss "
         "scale: 4.0 |",
         6502, 3.876781),
        ("step 10 loss 2.5 time 120ms tok/s 1234", 10, 2.5),
        ("Epoch [1/10], Step [100/600], Loss: 0.5", 100, 0.5),
        ("iter 7: loss 1.25, time 120.5ms, mfu 3%", 7, 1.25),
        ('{"step": 4, "loss": 0.75}', 4, 0.75),
        ("{'loss': 2.25, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}", 0, 2.25),
        ("step: 3, train_loss: 1.5, val_loss: 9.0", 3, 1.5),
    ],
)  # fmt: skip
def test_lines_of_training(tmp_path, line, step, loss):
    _, curves = Logs().read(written(tmp_path, line + "\n"))

    assert isinstance(curves, ScalarLog)
    assert (int(curves.step[0]), float(curves.value[0])) == (step, loss)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "# A tool\n\nIf CUDA out of memory appears, use less.\n\n    RuntimeError: x\n"),
        ("train.py", "raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')\n"),
        ("config.json", '{"timeout": "Connection reset by peer"}'),
        ("notes.txt", "a text about nothing\nof ours\n"),
    ],
)
def test_what_is_no_log_is_said(tmp_path, name, text):
    with pytest.raises(Unreadable, match="no line of a known log"):
        list(Logs().read(written(tmp_path, text, name)))


def test_a_kernel_log_without_an_error_is_known_and_says_nothing(tmp_path):
    text = "[Wed Jul  3 10:00:00 2024] pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0\n"

    assert read(written(tmp_path, text, "dmesg.txt")).events == ()


def test_noise_is_not_recognised(tmp_path):
    assert not Logs().recognises(tmp_path / "x.log", bytes(range(256)) * 10)


def test_a_cut_off_gzip_gives_what_stands_before(tmp_path):
    noise = "".join(f"[2024-07-03 10:00:00,000] [INFO] {os.urandom(40).hex()}\n" for _ in range(40_000))
    packed = gzip.compress(b"srun: error: node7: task 3: Killed\n" + noise.encode())
    path = written(tmp_path, packed[: len(packed) // 2], "job.log.gz")
    tables = []

    with pytest.raises(Unreadable, match="damaged"):
        for table in Logs().read(path):
            tables.append(table)

    assert [e.rank for e in tables[0].events] == [3]


def test_repeated_lines_are_counted(tmp_path):
    table = read(written(tmp_path, "[rank1]: Connection closed by peer\n" * 1000))

    assert (len(table.events), table.num_dropped, table.num_lines) == (MOST_ALIKE, 1000 - MOST_ALIKE, 1000)


def test_the_other_byte_orders_are_read(tmp_path):
    assert read(written(tmp_path, "srun: error: node7: task 3: Killed\n".encode("utf-16"))).events[0].rank == 3


def test_processes_of_nccl_have_ranks(tmp_path):
    text = (
        "n1:77:99 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 5 nranks 8 cudaDev 1 busId 1 - Init COMPLETE\n"
        "n1:77:99 [1] NCCL WARN NET/IB : Got completion from peer with status=12 opcode=0 len=0 vendor err 129\n"
    )

    table = read(written(tmp_path, text))

    assert (table.world_size, table.pids, table.events[0].kind, table.events[0].rank) == (8, ((77, 5),),
        "fabric-error", 5)


def test_names_say_ranks_only_where_they_mean_them(tmp_path):
    line = "[2024-07-03 10:00:00,000] [INFO] hello\n"
    names = {"rank_3.log": 3, "stderr_2.txt": 2, "slurm-12345.out": None, "kmsg.1.log": None, "run.log": None}

    assert {name: read(written(tmp_path, line, name)).rank for name in names} == names


def test_the_table_of_torchrun_names_rank_and_process(tmp_path):
    text = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2024-07-03_10:00:08\n  host      : node1\n"
        "  rank      : 5 (local_rank: 1)\n  exitcode  : -11 (pid: 99)\n  error_file: <N/A>\n"
    )

    (one,) = read(written(tmp_path, text)).events

    assert (one.kind, one.rank, one.local_rank, one.pid, one.number) == (log_lines.EXIT, 5, 1, 99, -11)
    assert one.time_ns == 1_720_000_808 * 10**9


@pytest.mark.parametrize("part", ["9", "a", "rank ", "(", "loss ", " File \"", "a.b/", "EDAC UE "])
def test_endless_lines_take_no_endless_time(tmp_path, part):
    path = written(tmp_path, f"srun: error: node7: task 3: Killed\nloss {part * 30_000} NCCL segfault\n")
    start = time.process_time()

    table = read(path)

    # Patterns that went back over all of such a line would take minutes.
    assert (table.events[0].rank, time.process_time() - start < 5) == (3, True)
