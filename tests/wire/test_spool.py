"""What was put is there until it is done, in order, whole, and no number is used twice."""

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from rankscope.wire.frame import Frame, FrameError, encode
from rankscope.wire.spool import Spool, SpoolFull


def numbers(spool):
    return [number for number, _ in spool.pending()]


def test_frames_come_back_in_the_order_of_their_numbers(tmp_path):
    spool = Spool(tmp_path)
    frames = [Frame(number, 0, bytes([number]) * 72) for number in (1, 2, 10)]

    for frame in frames:
        spool.put(frame)

    assert [spool.load(number) for number in numbers(spool)] == frames
    assert sorted(os.listdir(tmp_path)) == ["0000000001.frame", "0000000002.frame", "0000000010.frame"]


def test_done_frames_are_gone_and_their_numbers_are_not_used_again(tmp_path):
    spool = Spool(tmp_path)
    for number in (1, 2, 3):
        spool.put(Frame(number, 0))

    for number in (1, 3, 2, 3):
        spool.done(number)

    assert numbers(spool) == []
    assert (spool.next_number, Spool(tmp_path).next_number) == (4, 4)
    assert os.listdir(tmp_path) == ["0000000003.done"]
    assert (tmp_path / "0000000003.done").read_bytes() == b""


def test_a_new_spool_begins_with_1_and_refuses_a_number_twice(tmp_path):
    spool = Spool(tmp_path / "new")

    assert spool.next_number == 1
    spool.put(Frame(1, 0))
    with pytest.raises(ValueError, match="frame number 1 was used before; the next one is 2"):
        spool.put(Frame(1, 0))


def test_pending_frames_survive_a_restart(tmp_path):
    Spool(tmp_path).put(Frame(1, 0, bytes(72)))

    spool = Spool(tmp_path)

    assert (numbers(spool), spool.next_number, spool.load(1)) == ([1], 2, Frame(1, 0, bytes(72)))


def test_a_half_written_frame_is_not_pending(tmp_path):
    (tmp_path / "0000000001.writing").write_bytes(encode(Frame(1, 0, bytes(72)))[:50])

    spool = Spool(tmp_path)
    spool.put(Frame(1, 0))

    assert os.listdir(tmp_path) == ["0000000001.frame"]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: encode(Frame(9, 0))])
def test_a_damaged_file_is_moved_aside_and_counted(damage, tmp_path):
    spool = Spool(tmp_path)
    path = spool.put(Frame(5, 0, bytes(72)))
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(FrameError, match=rf"^{path}: byte \d+: "):
        spool.load(5)

    assert (numbers(spool), spool.damaged) == ([], 1)
    assert (Spool(tmp_path).damaged, Spool(tmp_path).next_number) == (1, 6)
    assert os.listdir(tmp_path) == ["0000000005.damaged"]


def test_a_full_disk_is_reported_and_leaves_nothing_half_written(tmp_path):
    spool = Spool(tmp_path)
    spool.put(Frame(1, 0))
    big = Frame(2, 0, bytes(72_000))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # the kernel then refuses to write more
    try:
        with pytest.raises(SpoolFull, match=r"no room for 0000000002.frame \(72\d+ bytes\)") as error:
            spool.put(big)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)

    assert error.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == ["0000000001.frame"]
    spool.put(big)
    assert numbers(spool) == [1, 2]


def test_other_errors_of_the_disk_pass_through(tmp_path):
    spool = Spool(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(FileNotFoundError):
        spool.put(Frame(1, 0))


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "notes.frame").write_text("mine")

    spool = Spool(tmp_path)

    assert (numbers(spool), spool.next_number, os.listdir(tmp_path)) == ([], 1, ["notes.frame"])


WRITER = """
import sys
from rankscope.wire.frame import Frame
from rankscope.wire.spool import Spool
spool = Spool(sys.argv[1])
while True:
    number = spool.next_number
    spool.put(Frame(number, 0, bytes(72) * 5000))
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_whole_frames_only(tmp_path):
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        for _ in range(20):
            printed = int(writer.stdout.readline())
        writer.kill()
        printed = max([printed, *map(int, writer.stdout.read().split())])

    spool = Spool(tmp_path)
    found = [spool.load(number).number for number in numbers(spool)]
    assert found in (list(range(1, printed + 1)), list(range(1, printed + 2)))
