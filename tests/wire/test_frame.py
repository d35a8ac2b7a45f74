"""A frame comes back as it was sent, or is refused with the byte where it breaks."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.records.payload import NAME, STACK, Payload
from rankscope.records.slot import MAX_ROWS
from rankscope.wire.frame import HEADER, Frame, FrameError, decode, encode

FRAME = Frame(7, 3, bytes(range(72)) * 2, (Payload(3, 4711, NAME, 1, "forward"), Payload(3, 4711, STACK, 2**63, "é")))

payloads = st.builds(
    Payload,
    node=st.integers(0, 2**16 - 1),
    process=st.integers(0, 2**32 - 1),
    kind=st.integers(0, 2**16 - 1),
    id=st.integers(0, 2**64 - 1),
    text=st.text(),
)
frames = st.builds(
    Frame,
    number=st.integers(0, 2**64 - 1),
    node=st.integers(0, 2**16 - 1),
    rows=st.integers(0, 3).flatmap(lambda n: st.binary(min_size=72 * n, max_size=72 * n)),
    payloads=st.lists(payloads, max_size=4).map(tuple),
)


@given(frames)
@settings(max_examples=100, deadline=None)
def test_a_frame_comes_back_as_it_was(frame):
    assert decode(encode(frame)) == frame


def test_text_with_lone_surrogates_survives():
    frame = Frame(1, 0, b"", (Payload(0, 1, NAME, 1, "\udcff.py"),))

    assert decode(encode(frame)) == frame


@pytest.mark.parametrize("length", range(len(encode(FRAME))))
def test_a_truncated_frame_names_the_byte_where_it_ends(length):
    with pytest.raises(FrameError, match=f"^spool/1: byte {length}: ") as error:
        decode(encode(FRAME)[:length], "spool/1")

    assert error.value.byte == length


@pytest.mark.parametrize("byte", range(len(encode(FRAME))))
def test_a_flipped_bit_anywhere_is_noticed(byte):
    damaged = bytearray(encode(FRAME))
    damaged[byte] ^= 0x10

    with pytest.raises(FrameError):
        decode(bytes(damaged))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GARBAGE" * 20, "frame: byte 0: b'GARB' is not the magic number"),
        (b"RKSF\x63\x00" + encode(FRAME)[6:], "frame: byte 4: version 99 is unknown"),
        (encode(FRAME) + b"x", f"frame: byte {len(encode(FRAME))}: 1 bytes follow the frame"),
        (encode(FRAME)[:-1] + b"x", f"frame: byte {HEADER.size}: the body's checksum is wrong"),
    ],
)
def test_what_is_no_frame_is_refused_with_its_place(data, says):
    with pytest.raises(FrameError) as error:
        decode(data)

    assert str(error.value).startswith(says)


def test_a_frame_is_bounded():
    with pytest.raises(ValueError, match=f"frame 1 has {MAX_ROWS + 1} rows; split it, {MAX_ROWS} is the limit"):
        Frame(1, 0, bytes(72 * (MAX_ROWS + 1)))


def test_rows_must_be_whole():
    with pytest.raises(ValueError, match="rows of frame 1 have 71 bytes, no multiple of 72"):
        Frame(1, 0, bytes(71))


def test_the_rows_stand_in_the_bytes_unchanged():
    assert encode(FRAME)[HEADER.size : HEADER.size + 144] == FRAME.rows
    assert struct.unpack_from("<4sH", encode(FRAME)) == (b"RKSF", 1)
