"""A timeline comes into its file whole or not at all."""

import gzip
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from rankscope.report.timeline.parts import Slices, Track
from rankscope.views.perfetto.file import Written, write_timeline

ONE = np.array([1], np.int64)
PARTS = (Track(1, "findings"), Slices(1, ONE, ONE + 4, ONE - 1, ONE - 1, ("a",)))


def broken():
    yield from PARTS
    raise ValueError("the records are damaged")


@pytest.mark.parametrize("name", ["x.pftrace", "x", "x.perfetto-trace", "x.json.txt"])
def test_any_other_name_is_perfettos_own(tmp_path, name):
    written = write_timeline(tmp_path / name, PARTS)

    assert written == Written(1, (tmp_path / name).stat().st_size)
    assert (tmp_path / name).read_bytes().startswith(b"\x0a\x04\x50\x01\x68\x01")


def test_json_by_its_name(tmp_path):
    write_timeline(tmp_path / "x.JSON", PARTS)

    assert json.loads((tmp_path / "x.JSON").read_text())["traceEvents"][-1]["dur"] == 0.004


@pytest.mark.parametrize("name", ["x.pftrace", "x.json"])
def test_packed_by_its_name(tmp_path, name):
    write_timeline(tmp_path / name, PARTS)
    write_timeline(tmp_path / f"{name}.gz", PARTS)

    assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()) == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("name", ["x.pftrace", "x.json.gz"])
def test_what_fails_half_way_leaves_nothing(tmp_path, name):
    with pytest.raises(ValueError, match="damaged"):
        write_timeline(tmp_path / name, broken())

    assert list(tmp_path.iterdir()) == []


def test_what_fails_half_way_leaves_the_older_file(tmp_path):
    (tmp_path / "x").write_text("older")
    with pytest.raises(ValueError, match="damaged"):
        write_timeline(tmp_path / "x", broken())

    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x", "older")]


def test_a_full_disk_is_told():
    with pytest.raises(OSError, match="No space left"):
        write_timeline(Path("/dev/full"), PARTS)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("older")
    (tmp_path / "x").symlink_to("real")
    write_timeline(tmp_path / "x", PARTS)

    assert (tmp_path / "x").is_symlink()
    assert (tmp_path / "real").read_bytes().startswith(b"\x0a\x04")


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_timeline(tmp_path / "pipe", PARTS)
    reader.join(10)
    write_timeline(tmp_path / "x", PARTS)

    assert got == [(tmp_path / "x").read_bytes()]
