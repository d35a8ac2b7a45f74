"""How fast and in how much memory a CUDA memory snapshot of any size is read and examined.

    python bench/snapshot.py [--mb 1000] [--frames 40] [--keep FILE]

The file is made here: byte by byte what `torch.cuda.memory._dump_snapshot` writes (Python's pickler, protocol 4, every
frame once, one list of frames per event), of a training that allocates the same tensors in every step.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 16
LIMIT_S, LIMIT_MB = 60.0, 1500.0
"""Of a snapshot of 1 GB."""
FUNCTIONS, STACKS, EVENTS_PER_STEP = 4000, 800, 1200


class Writer:
    """Writes plain values the way Python's C pickler does, without holding them."""

    def __init__(self, out: BinaryIO) -> None:
        self.out, self.bytes, self.memo = out, 0, 0
        self.texts: dict[str, int] = {}
        self.piece = bytearray()
        out.write(b"\x80\x04")

    def flush(self) -> None:
        self.out.write(b"\x95" + struct.pack("<Q", len(self.piece)) + self.piece)
        self.bytes += len(self.piece) + 9
        self.piece.clear()

    def raw(self, data: bytes) -> None:
        self.piece += data
        if len(self.piece) >= PIECE:
            self.flush()

    def remember(self) -> int:
        self.piece += b"\x94"
        self.memo += 1
        return self.memo - 1

    def text(self, value: str) -> None:
        if value in self.texts:
            self.piece += self.get(self.texts[value])
            return
        data = value.encode()
        self.raw(b"\x8c" + bytes([len(data)]) + data if len(data) < 256 else b"X" + struct.pack("<I", len(data)) + data)
        self.texts[value] = self.remember()

    @staticmethod
    def get(index: int) -> bytes:
        return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    @staticmethod
    def number(value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if 0 <= value < 65536:
            return b"M" + struct.pack("<H", value)
        if -(1 << 31) <= value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(data)]) + data

    def item(self, key: str, value: int | str) -> None:
        self.text(key)
        if isinstance(value, str):
            self.text(value)
        else:
            self.piece += self.number(value)


def make(path: Path, size: int, depth: int) -> int:  # noqa: PLR0915  one format, from its first byte to its last
    """Writes a snapshot of about `size` bytes; the number of its events."""
    chance = random.Random(1)
    stacks = [[chance.randrange(FUNCTIONS) for _ in range(depth)] for _ in range(STACKS)]
    with path.open("wb") as out:
        w = Writer(out)
        known: dict[int, int] = {}
        w.raw(b"}")
        w.remember()
        w.raw(b"(")
        w.text("segments")
        w.raw(b"]")
        w.remember()
        w.text("device_traces")
        w.raw(b"]")
        w.remember()
        w.raw(b"]")
        w.remember()
        events, now = 0, 1_700_000_000_000_000
        addresses = [0x7F0000000000 + i * (1 << 21) for i in range(EVENTS_PER_STEP)]
        sizes = [chance.randrange(512, 1 << 21) for _ in range(EVENTS_PER_STEP)]
        while w.bytes < size:
            w.raw(b"(")
            for i in range(1000):
                # Forward takes, backward gives back in the other order, in two events.
                step, phase = divmod(events + i, 3 * EVENTS_PER_STEP)
                if phase < EVENTS_PER_STEP:
                    which, action = phase, "alloc"
                else:
                    which = EVENTS_PER_STEP - 1 - (phase - EVENTS_PER_STEP) // 2
                    action = "free_requested" if phase % 2 == 0 else "free_completed"
                now += chance.randrange(3, 60)
                w.raw(b"}")
                w.remember()
                w.raw(b"(")
                w.item("action", action)
                w.item("addr", addresses[which])
                w.item("size", sizes[which])
                w.item("stream", 0)
                w.item("time_us", now)
                w.item("compile_context", "N/A")
                w.item("user_metadata", "")
                w.text("frames")
                w.raw(b"]")
                w.remember()
                w.raw(b"(")
                for frame in stacks[(which + step % 2) % STACKS]:
                    if frame in known:
                        w.piece += w.get(known[frame])
                        continue
                    w.raw(b"}")
                    known[frame] = w.remember()
                    w.raw(b"(")
                    w.item("name", f"forward_{frame}")
                    w.item("filename", f"/home/user/train/model_{frame % 97}.py")
                    w.item("line", frame % 977)
                    w.raw(b"u")
                w.raw(b"eu")
            w.raw(b"e")
            events += 1000
        w.raw(b"au.")
        # The list of devices has one item, which closes with APPEND; the outer dict was opened with MARK.
        w.flush()
    return events


def measure(path: Path) -> None:
    """Reads and examines the file; prints seconds and the peak of memory."""
    from rankscope.analysis.imported.examiners.memory_snapshots import MemorySnapshots
    from rankscope.artefacts.readers.memory_snapshot import MemorySnapshot

    start = time.perf_counter()
    tables = list(MemorySnapshot().read(path))
    read = time.perf_counter() - start
    examiner = MemorySnapshots()
    digests = [examiner.digest(table) for table in tables]
    examiner.examine(digests, None)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{took:.1f} {read:.1f} {peak:.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=40, help="of each stack")
    parser.add_argument("--keep", type=Path, help="where to leave the file; an existing one is used as it is")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "snapshot.pickle"
        if not path.exists():
            make(path, args.mb * 1_000_000, args.frames)
        # In a process of its own: making the file must not count.
        out = subprocess.run(
            [sys.executable, __file__, "--measure", str(path)], capture_output=True, text=True, check=True
        ).stdout
        took, read, peak = map(float, out.split())
        megabytes = os.path.getsize(path) / 1e6
        good = took <= LIMIT_S * megabytes / 1000 and peak <= LIMIT_MB
        word = "ok" if good else "TOO MUCH"
        print(f"{megabytes:.0f} MB: {took:.1f} s ({read:.1f} s to read), {peak:.0f} MB peak: {word}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
