"""Files are opened by what they are, and never unpacked beyond what could be meant."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from rankscope.artefacts import opening
from rankscope.artefacts.file_rank import file_rank
from rankscope.artefacts.opening import head_of, is_archive, members, opened
from rankscope.artefacts.reader import Unreadable

TEXT = b'{"traceEvents": []}' * 1000


def read(path):
    with opened(path) as stream:
        return stream.read()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_whatever_packed_it_the_contents_are_the_same(tmp_path, pack):
    path = tmp_path / "a.json"  # its name says nothing of how it is packed
    path.write_bytes(pack(TEXT))

    assert read(path) == TEXT
    assert head_of(path) == TEXT[: opening.HEAD]


def test_a_truncated_file_says_where(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 4000)[:-2000])

    with pytest.raises(Unreadable, match=r"damaged after [0-9,]+ unpacked bytes"):
        read(path)


def test_what_comes_before_the_cut_is_read(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 4000)[:-200])
    got = b""

    with pytest.raises(Unreadable), opened(path) as stream:
        while piece := stream.read(4096):
            got += piece
    assert len(got) >= 800_000


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "FREE", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(4 << 20)))

    with pytest.raises(Unreadable, match="looks like a bomb"):
        read(path)


def test_a_file_of_a_better_ratio_than_a_trace_is_read_while_it_is_small(tmp_path):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(4 << 20)))

    assert len(read(path)) == 4 << 20


def tar_of(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def unpacked(path):
    return [(name, member.read_bytes() if member else None, why) for name, member, why in members(path)]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_members_of_a_tar_come_with_their_names(tmp_path, mode):
    path = tmp_path / "job.tar"
    tar_of(path, {"rank0.json": b"{}", "logs/rank1.log": b"hello"}, mode)

    assert is_archive(path)
    assert unpacked(path) == [("rank0.json", b"{}", ""), ("logs/rank1.log", b"hello", "")]


def test_names_that_lead_elsewhere_write_nothing_there(tmp_path):
    path = tmp_path / "job.tar"
    tar_of(path, {"../../escaped.log": b"x", "/tmp/rankscope-escaped.log": b"y"})

    assert [data for _, data, _ in unpacked(path)] == [b"x", b"y"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.tar"]


def test_links_in_a_tar_are_passed_over(tmp_path):
    path = tmp_path / "job.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("passwd.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)

    assert unpacked(path) == []


def test_a_zip_tells_of_the_member_that_is_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "FREE", 1 << 20)
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log", "fine")
        archive.writestr("b.log", bytes(4 << 20))

    (first, second) = unpacked(path)

    assert is_archive(path)
    assert first == ("a.log", b"fine", "")
    assert second[:2] == ("b.log", None) and "looks like a bomb" in second[2]


def test_a_checkpoint_is_no_archive(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"...")

    assert not is_archive(path)


def test_a_damaged_tar_is_said_to_be(tmp_path):
    path = tmp_path / "job.tar"
    tar_of(path, {f"{i}.log": bytes(range(256)) * 40 for i in range(20)}, "w:gz")
    path.write_bytes(path.read_bytes()[:-300])

    with pytest.raises(Unreadable, match="damaged"):
        unpacked(path)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("trace-rank3.json.gz", 3),
        ("worker2_step_12.json", 2),
        ("_dump_14", 14),
        ("nccl_trace_rank_7", 7),
        ("job.tar:logs/rank-6.log", 6),
        ("global_rank_12_local_rank_4.json", 12),
        ("rank_12-local_rank_4.json", 12),
        ("node0_local_rank_3.json", 3),
        ("rank_5/trace.json", 5),
        ("job.tar:out/rank-6/step_100.json", 6),
        ("rank_5/trace_rank7.json", 7),
        ("rank_traces_5/trace.json", None),
        ("resnet50.json", None),
        ("rank999999999999.json", None),
        ("host.1623143089861.pt.trace.json", None),
        ("train.log", None),
    ],
)
def test_the_rank_in_a_file_s_name(name, rank):
    assert file_rank(name) == rank
