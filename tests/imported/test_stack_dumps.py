"""The rank that is elsewhere while the others wait, from stacks as py-spy and faulthandler write them."""

from __future__ import annotations

import pytest

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.stack_dumps import StackDumps
from rankscope.artefacts.readers.stack_dumps import StackDumps as Reader

WAITS = ((
    "wait",
        "torch/distributed/distributed_c10d.py", 2810), ("all_reduce", "torch/distributed/distributed_c10d.py", 2806),
         ("train", "train.py", 30), ("<module>", "train.py", 50))  # fmt: skip
ELSEWHERE = ((
    "acquire", "threading.py", 320), ("save", "train.py", 77), ("train", "train.py", 31), ("<module>", "train.py", 50))
COMPUTES = (("forward", "model.py", 9), ("train", "train.py", 28), ("<module>", "train.py", 50))


def py_spy(rank: int, frames: tuple[tuple[str, str, int], ...]) -> str:
    rows = "".join(f"    {function} ({file}:{line})\n" for function, file, line in frames)
    return (
        f"Process {4000 + rank}: python train.py --local-rank={rank}\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        f'Thread {4000 + rank} (idle): "MainThread"\n{rows}'
        f'Thread {5000 + rank} (idle): "Thread-1"\n    wait (threading.py:324)\n    run (threading.py:982)\n\n'
    )


def faulthandler(frames: tuple[tuple[str, str, int], ...]) -> str:
    where = {"train.py": "/home/me", "torch/distributed/distributed_c10d.py": "/usr/lib/python3.11/site-packages"}
    rows = "".join(
        f'  File "{where.get(file, "/usr/lib/python3.11")}/{file}", line {line} in {function}\n'
        for function, file, line in frames
    )
    return (
        'Thread 0x00007f851613d6c0 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 982 in '
        'run\n\n'
        f"Current thread 0x00007f8516c79b80 (most recent call first):\n{rows}\n"
    )


@pytest.fixture
def examined(tmp_path):
    def examine(**files: str) -> Answer:
        digests = []
        for name, text in files.items():
            path = tmp_path / f"{name}.txt"
            path.write_text(text, encoding="utf-8")
            digests += [StackDumps().digest(table) for table in Reader().read(path)]
        return StackDumps().examine(digests, None)

    return examine


def shown(answer: Answer) -> list[tuple[object, ...]]:
    return [(f.cause, f.ranks, f.location.function, f.location.line) for f in answer.findings]


ENDS = (("_shutdown", "threading.py", 1590),)


def test_who_has_come_to_the_end_of_the_program_is_not_who_keeps_the_others(examined):
    stacks = (ENDS, ENDS, WAITS, ELSEWHERE)

    assert [(f.cause, f.ranks) for f in examined(all="".join(py_spy(r, s) for r, s in enumerate(stacks))).findings] == [
        ("stuck-rank", (3,)),
    ]  # fmt: skip


def test_the_rank_outside_of_the_collective_is_stuck(examined):
    text = "".join(py_spy(r, ELSEWHERE if r == 2 else WAITS) for r in range(4))

    assert shown(examined(all=text)) == [("stuck-rank", (2,), "save", 77)]


def test_a_file_a_rank_says_the_same(examined):
    files = {f"rank{r}": faulthandler(ELSEWHERE if r == 1 else WAITS) for r in range(3)}

    assert shown(examined(**files)) == [("stuck-rank", (1,), "save", 77)]


def test_headings_name_the_ranks_of_one_file(examined):
    text = "".join(f"=== rank {r} ===\n{faulthandler(ELSEWHERE if r == 3 else WAITS)}" for r in range(4))

    assert shown(examined(all=text)) == [("stuck-rank", (3,), "save", 77)]


def test_prefixes_name_the_ranks_of_interleaved_dumps(examined):
    text = "".join(
        f"[rank{r}]: {line}\n" for r in range(3) for line in faulthandler(ELSEWHERE if r == 0 else WAITS).splitlines()
    )

    assert shown(examined(all=text)) == [("stuck-rank", (0,), "save", 77)]


@pytest.mark.parametrize("frames", [WAITS, COMPUTES])
def test_is_silent_where_all_stand_at_the_same_place(examined, frames):
    assert examined(all="".join(py_spy(r, frames) for r in range(4))).findings == ()


def test_one_that_is_in_another_collective_is_the_odd_one(examined):
    other = (*WAITS[:2], ("evaluate", "train.py", 66), WAITS[3])

    answer = examined(all="".join(py_spy(r, other if r == 1 else WAITS) for r in range(4)))

    assert shown(answer) == [("missing-collective", (1,), "evaluate", 66)]


def test_a_crash_is_a_dead_rank(examined):
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f8516c79b80 (most recent call first):\n"
        '  File "/home/me/ops.py", line 5 in call\n  File "/home/me/train.py", line 7 in <module>\n'
    )

    assert shown(examined(rank1=text)) == [("dead-rank", (1,), "call", 5)]


def test_one_process_alone_is_not_compared(examined):
    answer = examined(rank0=py_spy(0, WAITS))

    assert (answer.findings, answer.examined) == ((), False)
