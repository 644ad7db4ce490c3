"""The frames of replication against bytes that a real master and a real slave exchanged."""

import random

import pytest

from gantrymq.errors import HAFrameError
from gantrymq.ha.frames import FrameReader, LogFrame, ReportReader, encode_header, encode_report


def test_header_and_report_have_the_bytes_of_a_real_pair() -> None:
    assert encode_header(0x258000, 0x52A) == bytes.fromhex("00000000002580000000052a")
    assert encode_header(0x25852A, 0) == bytes.fromhex("000000000025852a00000000")
    assert encode_report(0x8000) == bytes.fromhex("0000000000008000")


def test_stream_cut_anywhere_gives_the_same_frames(rng: random.Random) -> None:
    frames, offset = [], 0
    for _ in range(50):
        frames.append(LogFrame(offset, rng.randbytes(rng.choice((0, 1, 700, 32768)))))
        offset = frames[-1].end_offset
    stream = b"".join(encode_header(frame.offset, len(frame.body)) + frame.body for frame in frames)
    reader, read, at = FrameReader(), [], 0
    while at < len(stream):
        end = at + rng.choice((1, 7, 13, 5000, 100_000))
        read += reader.feed(stream[at:end])
        at = end
    assert read == frames
    assert [frame.is_heartbeat for frame in read] == [not frame.body for frame in frames]


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, 32769), (1 << 40, 0x7FFFFFFF)])
def test_header_that_cannot_be_is_refused_before_its_body_arrives(offset: int, size: int) -> None:
    reader = FrameReader(max_body_bytes=32768)
    with pytest.raises(HAFrameError, match=f"{size} bytes at offset {offset}"):
        list(reader.feed(encode_header(offset, size)))


def test_frames_before_a_bad_header_are_read() -> None:
    reader, read = FrameReader(), []
    with pytest.raises(HAFrameError):
        read.extend(reader.feed(encode_header(5, 3) + b"abc" + encode_header(-8, 3)))
    assert read == [LogFrame(5, b"abc")]


def test_reports_cut_anywhere_are_read_in_order() -> None:
    reader = ReportReader()
    stream = b"".join(map(encode_report, (0, 32768, 65536, 1 << 62)))
    assert [reader.feed(stream[at : at + 5]) for at in range(0, len(stream), 5)] == [
        [], [0], [], [32768], [65536], [], [1 << 62],
    ]  # fmt: skip


def test_report_below_zero_is_refused() -> None:
    with pytest.raises(HAFrameError, match="offset -1"):
        ReportReader().feed(encode_report(-1))
