"""Event files are read as TensorBoard's own writers make them, with or without damage."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.artefacts.reader import Unreadable
from rankscope.artefacts.readers.tensorboard import Tensorboard
from rankscope.artefacts.tensorboard_events.checksum import all_masked, masked

NAME = "events.out.tfevents.1714879630.host.342997.0"


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number: int, value: bytes | int | float, wire: int = 2) -> bytes:
    key = varint(number << 3 | wire)
    if wire == 0:
        return key + varint(value)
    if wire == 1:
        return key + struct.pack("<d", value)
    if wire == 5:
        return key + struct.pack("<f", value)
    return key + varint(len(value)) + value


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def event(step: int, *values: bytes, wall: float = 1_714_879_630.5) -> bytes:
    head = field(1, wall, 1) + (field(2, step, 0) if step else b"")
    return record(head + field(5, b"".join(field(1, value) for value in values)))


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + field(2, value, 5)


def tensor(tag: str, dtype: int, body: bytes, shape: bytes = b"") -> bytes:
    metadata = field(9, field(1, field(1, b"scalars")))
    return field(1, tag.encode()) + field(8, field(1, dtype, 0) + field(2, shape) + body) + metadata


VERSION = record(field(1, 1_714_879_630.0, 1) + field(3, b"brain.Event:2"))


def write(tmp_path: Path, data: bytes, folder: str = "run", name: str = NAME) -> Path:
    path = tmp_path / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(path: Path):
    (table,) = Tensorboard().read(path)
    return table


def points(table) -> list[tuple[str, int, float]]:
    return [
        (table.tags[t], int(s), float(v)) for t, s, v in zip(table.tag, table.step, table.value, strict=True)
    ]  # fmt: skip


class TestScalars:
    def test_reads_scalars_of_pytorch(self, tmp_path):
        data = VERSION + b"".join(
            event(i * 128, simple("Loss/train", 2.0 / (1 << i % 20))) + event(i * 128, simple("lr", 0.5))
            for i in range(300)
        )

        table = read(write(tmp_path, data))

        assert points(table) == [
            p for i in range(300) for p in (("Loss/train", i * 128, 2.0 / (1 << i % 20)), ("lr", i * 128, 0.5))
        ]  # fmt: skip
        assert (table.num_records, table.num_damaged, table.truncated_bytes) == (601, 0, 0)
        assert (table.run, table.rank) == (str(tmp_path / "run"), None)
        assert set(table.time_ns.tolist()) == {1_714_879_630_500_000_000}

    def test_reads_several_values_of_one_event_and_passes_over_what_is_no_scalar(self, tmp_path):
        picture = field(1, b"picture") + field(4, field(4, b"\x89PNG" * 1000))
        histogram = field(1, b"weights") + field(5, field(1, -1.0, 1))
        data = VERSION + event(7, simple("a", 1.0), picture, simple("b", 2.0), histogram)

        assert points(read(write(tmp_path, data))) == [("a", 7, 1.0), ("b", 7, 2.0)]

    @pytest.mark.parametrize(
        ("dtype", "body", "value"),
        [
            (1, field(4, struct.pack("<f", 1.5)), 1.5),
            (1, field(5, struct.pack("<f", 1.5)), 1.5),
            (1, field(5, 1.5, 5), 1.5),
            (2, field(4, struct.pack("<d", -0.1)), -0.1),
            (2, field(6, struct.pack("<d", -0.1)), -0.1),
            (3, field(7, varint(-3)), -3.0),
            (3, field(4, struct.pack("<i", -3)), -3.0),
            (9, field(10, varint(1 << 40)), float(1 << 40)),
            (9, field(10, 5, 0), 5.0),
            (14, field(13, varint(0x3FC0)), 1.5),
            (14, field(4, b"\xc0\x3f"), 1.5),
            (19, field(13, varint(0x3E00)), 1.5),
            (10, field(11, varint(1)), 1.0),
        ],
    )
    def test_reads_scalars_of_tensorflow_2(self, tmp_path, dtype, body, value):
        data = VERSION + event(3, tensor("epoch_loss", dtype, body)) + event(4, tensor("epoch_loss", dtype, body))

        assert points(read(write(tmp_path, data))) == [("epoch_loss", 3, value), ("epoch_loss", 4, value)]

    def test_leaves_out_tensors_that_are_no_scalars(self, tmp_path):
        shape = field(2, field(1, 3, 0))
        text = tensor("text", 7, field(8, b"hello"))
        vector = tensor("vector", 1, field(4, struct.pack("<3f", 1, 2, 3)), shape)

        assert points(read(write(tmp_path, VERSION + event(1, text, vector, simple("a", 4.0))))) == [("a", 1, 4.0)]

    def test_keeps_values_that_are_no_numbers_and_negative_steps(self, tmp_path):
        data = VERSION + event(-1, simple("a", math.nan)) + event(5, simple("a", math.inf)) + event(5, simple("a", 1.0))

        table = read(write(tmp_path, data))

        assert [(s, str(v)) for _, s, v in points(table)] == [(-1, "nan"), (5, "inf"), (5, "1.0")]

    def test_takes_the_rank_from_the_folder_only(self, tmp_path):
        data = VERSION + event(0, simple("a", 1.0))

        assert read(write(tmp_path, data, "rank_3")).rank == 3
        assert read(write(tmp_path, data, "version_3")).rank is None

    def test_reads_compressed_files(self, tmp_path):
        data = gzip.compress(VERSION + event(0, simple("a", 1.0)))

        assert points(read(write(tmp_path, data, name=NAME + ".gz"))) == [("a", 0, 1.0)]


class TestDamage:
    def test_a_last_record_that_is_cut_off_is_counted(self, tmp_path):
        data = VERSION + event(1, simple("a", 1.0)) + event(2, simple("a", 2.0))

        for cut in (1, 4, 10, 25):
            table = read(write(tmp_path, data[:-cut]))
            assert points(table) == [("a", 1, 1.0)]
            assert table.truncated_bytes == len(event(2, simple("a", 2.0))) - cut

    def test_a_record_with_a_wrong_check_sum_is_left_out_and_counted(self, tmp_path):
        bad = bytearray(event(2, simple("a", 2.0)))
        bad[20] ^= 1
        good = b"".join(event(i, simple("a", 1.0)) for i in range(50))

        table = read(write(tmp_path, VERSION + good + bytes(bad) + event(99, simple("a", 3.0))))

        assert (len(table.value), table.num_damaged, points(table)[-1]) == (51, 1, ("a", 99, 3.0))

    def test_a_damaged_length_ends_the_file_and_what_is_before_is_used(self, tmp_path):
        bad = bytearray(event(2, simple("a", 2.0)))
        bad[2] ^= 1
        before = VERSION + event(1, simple("a", 1.0))
        reading = Tensorboard().read(write(tmp_path, before + bytes(bad)))

        assert points(next(reading)) == [("a", 1, 1.0)]
        with pytest.raises(Unreadable, match=f"damaged at byte {len(before):,}"):
            next(reading)

    def test_records_of_any_size_are_passed_over(self, tmp_path):
        large = record(field(1, 1.0, 1) + field(4, bytes(6 << 20)))
        data = VERSION + large + event(1, simple("a", 1.0)) + large

        table = read(write(tmp_path, data))

        assert (points(table), table.num_records) == ([("a", 1, 1.0)], 4)

    def test_says_that_there_is_no_record(self, tmp_path):
        with pytest.raises(Unreadable, match="no complete record in 20 bytes"):
            list(Tensorboard().read(write(tmp_path, VERSION[:20])))

    @settings(max_examples=300, deadline=None)
    @given(at=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4))
    def test_mutations_are_read_or_refused(self, tmp_path_factory, at):
        data = bytearray(VERSION + b"".join(event(i, simple("a", 1.0), tensor("b", 1, b"")) for i in range(20)))
        for place, byte in at:
            data[place % len(data)] = byte
        path = write(tmp_path_factory.mktemp("mutated"), bytes(data))
        try:
            for table in Tensorboard().read(path):
                assert len(table.value) <= 40
        except Unreadable as error:
            assert "\n" not in str(error)

    @settings(max_examples=300, deadline=None)
    @given(body=st.binary(max_size=60))
    def test_events_of_anything_with_right_check_sums_are_read_or_counted(self, tmp_path_factory, body):
        path = write(tmp_path_factory.mktemp("made"), VERSION + record(b"\x09" + bytes(8) + body) + record(body))

        table = read(path)

        assert table.num_records == 3


def test_recognises_by_the_first_record():
    assert Tensorboard().recognises(Path("x"), VERSION)
    assert not Tensorboard().recognises(Path(NAME), b"")
    assert not Tensorboard().recognises(Path(NAME), bytes(100))


def test_check_sums_of_many_equal_those_of_one():
    assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF  # RFC 3720
    pieces = [bytes([i % 256]) * (i % 7) for i in range(500)]

    assert all_masked(pieces).tolist() == [masked(piece) for piece in pieces]


def test_real_files(data):
    folder = data("tensorboard")

    tables = [read(path) for path in sorted(folder.iterdir())]

    assert [(t.num_records, t.num_damaged, t.truncated_bytes) for t in tables] == [(5069, 0, 0), (1087, 0, 0)]
    assert [{tag: int((t.tag == i).sum()) for i, tag in enumerate(t.tags)} for t in tables] == [
        {"Loss/train": 1534, "Accuracy/train": 1534, "Loss/valid": 1000, "Accuracy/valid": 1000},
        {"Loss/train": 543, "Accuracy/train": 543},
    ]
