"""Memory snapshots are read whatever wrote them, in little memory, and nothing in them is executed."""

from __future__ import annotations

import gzip
import os
import pickle
import pickletools
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.memory_snapshot import MemorySnapshot
from rankscope.records.imported.memory_snapshot import ACTIONS, ALLOCATED, INACTIVE, OTHER, PENDING, Frame

FRAME_A = {"filename": "/home/user/model.py", "line": 12, "name": "forward"}
FRAME_B = {"filename": "/home/user/train.py", "line": 3, "name": "<module>"}


def event(action: str, address: int, size: int, time: int, frames: list, **more: object) -> dict:
    """As of PyTorch 2.5."""
    where = {"device_free" if action == "oom" else "addr": address}
    return {"action": action, **where, "size": size, "stream": 0, "time_us": time, "compile_context": "N/A",
            "user_metadata": "", **more, "frames": frames}  # fmt: skip


def block(address: int, size: int, state: str, frames: list) -> dict:
    return {"address": address, "size": size, "requested_size": size - 12, "state": state, "frames": frames}


def segment(address: int, size: int, blocks: list, device: int = 0, pool: tuple[int, int] = (0, 0)) -> dict:
    return {"device": device, "address": address, "total_size": size, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": pool, "is_expandable": False,
            "frames": [], "blocks": blocks}  # fmt: skip


def small() -> dict:
    stack = [FRAME_A, FRAME_B]
    events = [
        event("segment_alloc", 0x7F0000000000, 20 << 20, 1_700_000_000_000_000, stack),
        event("alloc", 0x7F0000000000, 1000, 1_700_000_000_000_001, stack),
        event("alloc", 0x7F0000000400, 70_000, 1_700_000_000_000_002, list(stack)),
        event("free_requested", 0x7F0000000000, 1000, 1_700_000_000_000_003, []),
        event("free_completed", 0x7F0000000000, 1000, 1_700_000_000_000_004, []),
        event("oom", 5 << 30, 9 << 30, 1_700_000_000_000_005, [FRAME_B]),
        event("snapshot", 0, 0, 1_700_000_000_000_006, [FRAME_A] * 3),
        event("something_new", 0, 0, 1_700_000_000_000_007, stack, pool_id=(0, 1)),
    ]
    blocks = [
        block(0x7F0000000000, 1024, "inactive", []),
        block(0x7F0000000400, 70_144, "active_allocated", stack),
        block(0x7F0000011600, 512, "active_pending_free", stack),
    ]
    return {
        "segments": [segment(0x7F0000000000, 20 << 20, blocks), segment(0x7E0000000000, 2 << 20, [], pool=(0, 3))],
        "device_traces": [events, []],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False, "roundup": {"1": 0}},
        "external_annotations": [
            {"stage": "START", "name": "ProfilerStep#3", "device": 0, "time_us": 1_700_000_000_000_000},
            {"stage": "END", "name": "ProfilerStep#3", "device": 0, "time_us": 1_700_000_000_000_009},
        ],
    }


def write(tmp_path: Path, data: bytes, name: str = "snapshot_rank3.pickle") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def rows(table) -> list[tuple]:
    return [
        (int(a), int(b), int(c), int(d), table.stack_of(int(s)))
        for a, b, c, d, s in zip(table.action, table.address, table.size, table.time_ns, table.stack, strict=True)
    ]


def expected(snapshot: dict, device: int = 0) -> list[tuple]:
    return [
        (
            ACTIONS.get(e["action"], OTHER), e.get("addr", e.get("device_free")), e["size"], e.get("time_us", -1) * 1000
            if "time_us" in e else -1, tuple(Frame(f["filename"], f["line"], f["name"]) for f in e.get("frames", ())),
        )
        for e in snapshot["device_traces"][device]
    ]  # fmt: skip


class JitPickler:
    """Writes as PyTorch's C++ pickler does (`torch::cuda::_memory_snapshot_pickled`): protocol 2, values remembered
    after they are complete, empty lists closed, every number of more than 4 bytes written in 8."""

    def __init__(self) -> None:
        self.out, self.memo, self.texts = bytearray(b"\x80\x02"), {}, {}
        self.count = 0

    def put(self) -> int:
        self.out += b"q" + bytes([self.count]) if self.count < 256 else b"r" + struct.pack("<I", self.count)
        self.count += 1
        return self.count - 1

    def get(self, index: int) -> None:
        self.out += b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def push(self, value: object) -> None:
        if isinstance(value, str):
            if value in self.texts:
                self.get(self.texts[value])
                return
            data = value.encode()
            self.out += b"X" + struct.pack("<I", len(data)) + data
            self.texts[value] = self.put()
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            if 0 <= value < 256:
                self.out += b"K" + bytes([value])
            elif 0 <= value < 65536:
                self.out += b"M" + struct.pack("<H", value)
            elif -(1 << 31) <= value < 1 << 31:
                self.out += b"J" + struct.pack("<i", value)
            else:
                self.out += b"\x8a\x08" + struct.pack("<q", value)
        elif isinstance(value, tuple):
            for item in value:
                self.push(item)
            self.out += b"\x86"
        elif id(value) in self.memo:
            self.get(self.memo[id(value)])
        else:
            self.out += b"](" if isinstance(value, list) else b"}("
            for item in value if isinstance(value, list) else [x for pair in value.items() for x in pair]:
                self.push(item)
            self.out += b"e" if isinstance(value, list) else b"u"
            self.memo[id(value)] = self.put()

    def dump(self, value: object) -> bytes:
        self.push(value)
        return bytes(self.out + b".")


class TestDialects:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_reads_every_protocol(self, tmp_path, protocol):
        path = write(tmp_path, pickle.dumps(small(), protocol=protocol))

        table, *more = MemorySnapshot().read(path)

        assert (table.rank, table.device, more) == (3, 0, [])
        assert rows(table) == expected(small())
        assert table.block_state.tolist() == [INACTIVE, ALLOCATED, PENDING]
        assert table.block_requested.tolist() == [1012, 70_132, 500]
        assert table.block_segment.tolist() == [0, 0, 0]
        assert table.stack_of(int(table.block_stack[1])) == (Frame(*FRAME_A.values()), Frame(*FRAME_B.values()))
        assert (table.segment_size.tolist(), table.segment_pool.tolist()) == ([20 << 20, 2 << 20], [0, 1])
        assert table.settings == {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": "False"}
        assert (table.annotation_name, table.annotation_starts.tolist()) == (("ProfilerStep#3",) * 2, [True, False])

    def test_reads_what_pytorch_itself_pickles(self, tmp_path):
        table = next(MemorySnapshot().read(write(tmp_path, JitPickler().dump(small()))))

        assert rows(table) == expected(small())

    def test_reads_a_pickle_that_remembers_nothing(self, tmp_path):
        data = pickletools.optimize(pickle.dumps(small()))

        assert rows(next(MemorySnapshot().read(write(tmp_path, data)))) == expected(small())

    def test_reads_pytorch_2_0(self, tmp_path):
        # No times, no addresses of blocks; the stack is in the block's history.
        old = {
            "segments": [
                {"device": 0, "address": 4096, "total_size": 2048, "allocated_size": 1024, "active_size": 1024,
                 "stream": 0, "segment_type": "small", "blocks": [
                     {"size": 512, "state": "inactive"},
                     {"size": 1024, "state": "active_allocated",
                      "history": [{"addr": 4608, "real_size": 1000, "frames": [FRAME_A]}]},
                     {"size": 512, "state": "inactive", "history": []}]},
            ],
            "device_traces": [[{"action": "alloc", "addr": 4608, "size": 1000, "stream": 0, "frames": [FRAME_A]}] * 1],
        }  # fmt: skip

        table = next(MemorySnapshot().read(write(tmp_path, pickle.dumps(old))))

        assert table.block_address.tolist() == [4096, 4608, 5632]
        assert table.block_requested.tolist() == [512, 1000, 512]
        assert table.stack_of(int(table.block_stack[1])) == (Frame(*FRAME_A.values()),)
        assert table.time_ns.tolist() == [-1]

    def test_reads_a_bare_list_of_segments(self, tmp_path):
        table = next(MemorySnapshot().read(write(tmp_path, pickle.dumps(small()["segments"]))))

        assert (len(table.action), table.block_size.tolist()) == (0, [1024, 70_144, 512])

    def test_reads_a_snapshot_inside_of_something(self, tmp_path):
        table = next(MemorySnapshot().read(write(tmp_path, pickle.dumps({"step": 4, "snapshot": small()}))))

        assert rows(table) == expected(small())

    def test_gives_each_device_a_table(self, tmp_path):
        both = small()
        both["segments"].append(segment(4096, 512, [block(4096, 512, "inactive", [])], device=1))
        both["device_traces"] = [[], both["device_traces"][0][:2], [], both["device_traces"][0][2:]]

        tables = list(MemorySnapshot().read(write(tmp_path, pickle.dumps(both))))

        assert [(t.device, len(t.action), len(t.block_size)) for t in tables] == [(0, 0, 3), (1, 2, 1), (3, 6, 0)]

    def test_reads_frames_with_more_than_three_fields_and_without_stacks(self, tmp_path):
        one = small()
        one["device_traces"][0][0]["frames"] = [FRAME_A | {"fx_node_op": "call_function", "fx_node_name": "linear"}]
        for e in one["device_traces"][0][1:]:
            del e["frames"]
        del one["segments"]

        table = next(MemorySnapshot().read(write(tmp_path, pickle.dumps(one))))

        assert table.stack.tolist() == [0] + [-1] * 7

    def test_reads_compressed_files(self, tmp_path):
        path = write(tmp_path, gzip.compress(pickle.dumps(small())), "snapshot_rank7.pickle.gz")

        assert next(MemorySnapshot().read(path)).rank == 7

    def test_many_events_of_changing_shapes_equal_what_pickle_reads(self, tmp_path):
        stacks = [[FRAME_A] * n + [FRAME_B] for n in (0, 1, 2, 300, 1200)]
        events = []
        for i in range(3000):
            more = {"pool_id": (0, i % 3)} if i % 7 == 0 else {}
            action = ("alloc", "free_requested", "oom", f"new_{i % 5}")[i % 4]
            where, size, now = i * (1 << (i % 40)), i * 37 % 70_000, 1_700_000_000_000_000 + i
            events.append(event(action, where, size, now, list(stacks[i % 5]), **more))
            if i % 11 == 0:
                events[-1]["frames"] = events[0]["frames"]
            if i % 13 == 0:
                events[-1] = dict(reversed(events[-1].items()))
        snapshot = {"segments": [], "device_traces": [events]}

        for data in (*(pickle.dumps(snapshot, protocol=p) for p in (2, 4)), JitPickler().dump(snapshot)):
            assert rows(next(MemorySnapshot().read(write(tmp_path, data)))) == expected(snapshot)


    def test_reads_rows_and_lists_that_stand_in_several_places(self, tmp_path):
        one = small()
        first = one["device_traces"][0][1]
        one["device_traces"] = [[first] * 3 + one["device_traces"][0], [first]]
        one["device_traces"].append(one["device_traces"][0])
        one = {"external_annotations": one.pop("external_annotations") * 2} | one
        one["segments"] = [one["segments"][0]] * 2 + [one["segments"][1]]
        one["segments"].append(segment(8192, 4096, one["segments"][0]["blocks"]))
        one["segments"][3]["blocks"] = [one["segments"][0]["blocks"][1]] * 2

        for data in (*(pickle.dumps(one, protocol=p) for p in (2, 4)), JitPickler().dump(one)):
            tables = list(MemorySnapshot().read(write(tmp_path, data)))
            assert [rows(t) for t in tables] == [expected(one, device) for device in range(3)]
            assert tables[0].block_size.tolist() == [1024, 70_144, 512] * 2 + [70_144] * 2
            assert tables[0].block_segment.tolist() == [0, 0, 0, 1, 1, 1, 3, 3]


class TestRecognition:
    def test_by_what_it_is(self, tmp_path):
        reader = MemorySnapshot()

        assert reader.recognises(Path("x"), pickle.dumps(small()))
        assert not reader.recognises(Path("snapshot.pickle"), pickle.dumps({"entries": [], "pg_config": {}}))
        assert not reader.recognises(Path("snapshot.pickle"), b"")
        assert not reader.recognises(Path("snapshot.json"), b'{"device_traces": []}')


RAN: list[str] = []


class Evil:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


HOSTILE = {
    "REDUCE": b"cos\nsystem\n(S'touch {}'\ntR.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x05touch\x85R.",
    "INST": b"(S'touch {}'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'touch {}'\no.",
    "NEWOBJ": b"\x80\x02cos\nsystem\n\x8c\x05touch\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04}}\x92.",
    "BUILD": b"\x80\x02}}b.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "PERSID": b"\x80\x02Pabc\n.",
    "BINPERSID": b"\x80\x02K\x01Q.",
}


class TestHostileFiles:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_runs_nothing(self, tmp_path, name):
        target = tmp_path / "ran"
        data = HOSTILE[name].replace(b"{}", str(target).encode())
        # Behind a whole snapshot, and alone.
        for prefix in (b"", b"\x80\x04" + pickle.dumps(small())[2:-1]):
            body = data[2:] if prefix and data[:1] == b"\x80" else data
            with pytest.raises(Unreadable, match="byte"):
                list(MemorySnapshot().read(write(tmp_path, (prefix + body) if prefix else data)))

            assert not target.exists()

    def test_runs_nothing_in_the_place_of_a_size(self, tmp_path):
        target = tmp_path / "ran"
        bad = small()
        bad["segments"][0]["blocks"][0]["size"] = Evil(f"touch {target}")

        with pytest.raises(Unreadable, match="can run code; nothing was run"):
            list(MemorySnapshot().read(write(tmp_path, pickle.dumps(bad))))

        assert not target.exists()
        assert "os" in sys.modules

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "truncated"),
            (b"\x80\x04", "truncated"),
            (b"\x80\x09.", "protocol 9"),
            (b"\x80\x04N.", "no memory snapshot"),
            (b"\x80\x04}.", "no memory snapshot"),
            (b"\x80\x04h\x07.", "value 7 of the memo"),
            (b"\x80\x04u.", "did not open"),
            (b"\x80\x04}(]Nu.", "no plain value"),
            (b"\x80\x04K\x01K\x02.", "2 values"),
            (b"\x80\x04X\xff\xff\xff\xffabc", "a text of"),
            (b"\x80\x04\x8b\xff\xff\xff\x7f", "a number of"),
            (b"\x80\x04" + b"(" * 5000 + b".", "nested deeper"),
            (b"\x80\x04]" + b"]" * 20_000_000, "truncated|does not|more than|deeper"),
            (b"\x80\x04\x94.", "does not have"),
            (b"\x80\x04(\x85.", "of nothing"),
            (bytes(range(128, 256)) * 10, "opcode|can run|protocol"),
        ],
    )  # fmt: skip
    def test_says_what_is_broken(self, tmp_path, data, why):
        with pytest.raises(Unreadable, match=why):
            list(MemorySnapshot().read(write(tmp_path, data)))

    def test_names_a_number_that_is_none(self, tmp_path):
        bad = small()
        bad["device_traces"][0][3]["size"] = "much"

        with pytest.raises(Unreadable, match="size is 'much'"):
            list(MemorySnapshot().read(write(tmp_path, pickle.dumps(bad))))

    def test_says_where_it_is_cut_off(self, tmp_path):
        data = pickle.dumps(small())

        for cut in range(3, len(data) - 1, 17):
            with pytest.raises(Unreadable, match="truncated"):
                list(MemorySnapshot().read(write(tmp_path, data[:cut])))

    @settings(max_examples=300, deadline=None)
    @given(at=st.lists(st.tuples(st.integers(2, 2000), st.integers(0, 255)), min_size=1, max_size=4))
    def test_mutations_are_read_or_refused(self, tmp_path_factory, at):
        data = bytearray(pickle.dumps(small()))
        for place, byte in at:
            data[place % len(data)] = byte
        path = write(tmp_path_factory.mktemp("mutated"), bytes(data))
        try:
            list(MemorySnapshot().read(path))
        except Unreadable as error:
            assert "\n" not in str(error)


def test_memory_does_not_grow_with_the_objects_of_a_file(tmp_path):
    stack = [FRAME_A, FRAME_B] * 20
    events = [event("alloc", i * 512, 512, 1_700_000_000_000_000 + i, list(stack)) for i in range(60_000)]
    path = write(tmp_path, pickle.dumps({"segments": [], "device_traces": [events]}))
    del events
    tracemalloc.start()

    table = next(MemorySnapshot().read(path))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table.action) == 60_000
    assert path.stat().st_size > 7_000_000
    assert peak < 40_000_000  # two pieces of the file, the memo and the columns; as objects it is 70 MB


def test_a_real_snapshot_equals_what_pickle_reads(data):
    path = data("memory/snapshot/mini_snapshot.pickle")
    with path.open("rb") as stream:
        truth = pickle.load(stream)  # holds plain values only, as its opcodes show

    table = next(MemorySnapshot().read(path))

    assert rows(table) == expected(truth)
    assert (len(table.segment_size), len(table.block_size), len(table.frames)) == (14, 14, 200)
    assert int(table.segment_size.sum()) == 421_527_552
