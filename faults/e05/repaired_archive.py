"""A folder of scans: a header of two integers, then float32 pixels."""

from __future__ import annotations

import struct
from pathlib import Path

import torch
from torch.utils.data import Dataset

SIDE = 32
SCANS = 1280
HEADER = struct.Struct("<II")
FULL_BYTES = HEADER.size + 4 * SIDE * SIDE
# Bytes of a file that the nightly copy has moved so far, where it is not through.
MOVED_BYTES = {123: 2112}


def copy_archive(folder: Path) -> None:
    """Puts the scans into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(15)
    ramp = torch.linspace(-1.0, 1.0, SIDE)
    for number in range(SCANS):
        tilt, bend, shift = torch.randn(3, generator=generator).tolist()
        scan = tilt * ramp[:, None] + bend * ramp[None, :] ** 2 + torch.sin(3.0 * ramp[:, None] * ramp[None, :] + shift)
        scan += 0.1 * torch.randn(SIDE, SIDE, generator=generator)
        raw = HEADER.pack(SIDE, SIDE) + scan.numpy().astype("<f4").tobytes()
        (folder / f"scan_{number:04d}.raw").write_bytes(raw[: MOVED_BYTES.get(number, FULL_BYTES)])


def read_scan(path: Path) -> torch.Tensor:
    """One scan, [SIDE * SIDE]."""
    raw = path.read_bytes()
    rows, columns = HEADER.unpack_from(raw)
    if len(raw) != HEADER.size + 4 * rows * columns:
        raise OSError(f"{path.name}: file is truncated ({len(raw)} bytes)")
    return torch.frombuffer(bytearray(raw), dtype=torch.float32, offset=HEADER.size)


class Scans(Dataset):
    def __init__(self, folder: Path) -> None:
        found = sorted(folder.glob("scan_*.raw"))
        self.paths = [path for path in found if path.stat().st_size == FULL_BYTES]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return read_scan(self.paths[index])
