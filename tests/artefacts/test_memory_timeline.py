"""Memory timelines of `torch.profiler`, as allocations and as sums."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from rankscope.artefacts.opening import head_of
from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers import memory_timeline
from rankscope.artefacts.readers.memory_timeline import MemoryTimeline

BEGUN = 1_700_000_000_000_000_000
EVENTS = [
    [-1, 0, 1000, 7], [-1, 0, 500, 0],
    [BEGUN + 100, 1, 300, 4], [BEGUN + 100, 1, 50, 3],
    [BEGUN + 200, 2, -300, 4], [BEGUN + 200, 2, 300, 5],
    [BEGUN + 300, 3, -50, 3],
]  # fmt: skip
HELD = [
    [500, 0, 0, 0, 0, 0, 0, 1000],
    [500, 0, 0, 50, 300, 0, 0, 1000],
    [500, 0, 0, 50, 0, 300, 0, 1000],
    [500, 0, 0, 0, 0, 300, 0, 1000],
]


def write(tmp_path: Path, content: bytes, name: str = "memory_rank2.raw.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def read(path: Path) -> memory_timeline.Timeline:
    assert MemoryTimeline().recognises(path, head_of(path))
    (table,) = MemoryTimeline().read(path)
    assert isinstance(table, memory_timeline.Timeline)
    return table


@pytest.mark.parametrize("piece", [40, 90, 1 << 20])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_adds_up_allocations(tmp_path, monkeypatch, piece, pack):
    monkeypatch.setattr(memory_timeline, "_PIECE", piece)
    monkeypatch.setattr(memory_timeline, "_FIRST", 200)
    table = read(write(tmp_path, pack(json.dumps(EVENTS).encode())))

    assert table.bytes.tolist() == HELD
    assert (table.time_ns - BEGUN).tolist() == [100, 100, 200, 300]
    assert table.rank == 2


def test_reads_sums_as_well(tmp_path):
    times = [BEGUN + 1, BEGUN + 2, BEGUN + 3, BEGUN + 4]

    assert read(write(tmp_path, json.dumps([times, HELD]).encode())).bytes.tolist() == HELD


@pytest.mark.parametrize("layout", [{"indent": 1}, {"separators": (",", ":")}])
def test_any_spacing(tmp_path, layout):
    assert read(write(tmp_path, json.dumps(EVENTS, **layout).encode())).bytes.tolist() == HELD


@pytest.mark.parametrize(
    "content",
    [
        b"[]", b"[[1, 2]]", b"[[-1, 0, 5, 7], [-1, 0, 5, 7], [-1, 0, 5, 7], [-1, 0, 5,", b"[[-1, 0, 5, 99]]",
        json.dumps([[BEGUN] * 4, [[1, 2], [3]]]).encode(), b"[[[[[[", b"\x00" * 100,
    ],
)  # fmt: skip
def test_what_is_none_is_refused(tmp_path, content):
    with pytest.raises(Unreadable):
        list(MemoryTimeline().read(write(tmp_path, content)))


@pytest.mark.parametrize("seed", range(40))
def test_mutations_end_in_a_table_or_in_one_line(tmp_path, seed):
    chance = random.Random(seed)
    content = bytearray(json.dumps(EVENTS).encode())
    for _ in range(chance.choice((1, 3))):
        content[chance.randrange(len(content))] = chance.randrange(256)

    try:
        list(MemoryTimeline().read(write(tmp_path, bytes(content))))
    except Unreadable as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("head", [b"[[1, 2, 3], [4, 5, 6]]", b'[{"ph": "X"}]', b"", b"[[1.5, 0, 3, 4]]"])
def test_leaves_other_lists_alone(head):
    assert not MemoryTimeline().recognises(Path("x.json"), head)


def test_a_real_timeline(data):
    table = read(data("memory/kineto-memory/memory_timeline.raw.gz"))

    assert len(table.bytes) == 7_721
    assert table.bytes[744].tolist() == [102440608, 102228128, 19395584, 0, 2618160128, 58417152, 41811968, 25494440]
