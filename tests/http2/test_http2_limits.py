"""Attacks on HTTP/2: each ends its own connection after a bounded amount of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from gantrymq.http2 import frames
from gantrymq.http2.connection import ConnectionFailed, RequestReceived, ServerConnection
from gantrymq.http2.frames import END_HEADERS, ErrorCode, FrameType, Setting, frame
from gantrymq.http2.headers import encode
from gantrymq.http2.limits import Limits
from http2_peer import GREETING, block, data, headers, read_frames

LIMITS = Limits()


def rapid_resets() -> Iterator[bytes]:
    for stream_id in count(1, 2):
        yield headers(stream_id, end=True) + frames.rst_stream(stream_id, ErrorCode.CANCEL)


def resets_by_server() -> Iterator[bytes]:
    """MadeYouReset (CVE-2025-8671): frames that are wrong, so that the server resets the streams."""
    for stream_id in count(1, 2):
        yield headers(stream_id, end=True) + frames.window_update(stream_id, 0)


def streams_without_end() -> Iterator[bytes]:
    for stream_id in count(1, 2):
        yield headers(stream_id)


def malformed_requests() -> Iterator[bytes]:
    for stream_id in count(1, 2):
        yield headers(stream_id, ("te", "gzip"))


def continuations() -> Iterator[bytes]:
    yield frame(FrameType.HEADERS, 0, 1, block())
    while True:
        yield frame(FrameType.CONTINUATION, 0, 1)


def repeated(raw: bytes, first: bytes = b"") -> Callable[[], Iterator[bytes]]:
    def made() -> Iterator[bytes]:
        yield first
        while True:
            yield raw

    return made


FLOODS = {
    "rapid resets": rapid_resets,
    "resets by the server": resets_by_server,
    "streams without end": streams_without_end,
    "malformed requests": malformed_requests,
    "empty continuations": continuations,
    "pings": repeated(frame(FrameType.PING, 0, 0, bytes(8))),
    "settings": repeated(frames.settings({Setting.INITIAL_WINDOW_SIZE: 1})),
    "acknowledgements": repeated(frame(FrameType.SETTINGS, 1, 0)),
    "priorities": repeated(frame(FrameType.PRIORITY, 0, 1, bytes(5))),
    "unknown frames": repeated(frame(77, 0, 0)),
    "empty data": repeated(data(1, b""), headers(1)),
    "padding alone": repeated(frame(FrameType.DATA, 8, 1, b"\1\0"), headers(1)),
    "windows of the connection": repeated(frames.window_update(0, 1)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_ends_with_goaway_after_bounded_work(name: str) -> None:
    connection, sent_bytes, begun = ServerConnection(LIMITS, 0.0), 0, 0
    connection.receive(GREETING, 0.0)
    for number, raw in enumerate(FLOODS[name]()):
        events = connection.receive(raw, 0.0)
        begun += sum(isinstance(event, RequestReceived) for event in events)
        sent_bytes += len(out := connection.take())
        assert connection.open_streams <= LIMITS.max_streams
        if connection.is_failed:
            break
        assert number < LIMITS.max_streams + LIMITS.budget
    assert isinstance(events[-1], ConnectionFailed)
    assert events[-1].code == ErrorCode.ENHANCE_YOUR_CALM
    last = read_frames(out)[-1]
    assert (last.kind, last.payload[7]) == (FrameType.GOAWAY, ErrorCode.ENHANCE_YOUR_CALM)
    assert begun <= LIMITS.max_streams
    assert sent_bytes < 64 << 10
    assert connection.receive(headers(99_999, end=True), 0.0) == []


def test_windows_opened_by_a_byte_end_with_goaway() -> None:
    """Data dribble (CVE-2019-9511): a frame of 13 bytes makes the server send one of 10."""
    connection = ServerConnection(LIMITS, 0.0)
    connection.receive(frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}) + headers(1, end=True), 0.0)
    connection.send_data(1, bytes(100_000))
    data_frames = 0
    while not connection.is_failed:
        connection.receive(frames.window_update(1, 1), 0.0)
        data_frames += sum(one.kind == FrameType.DATA for one in read_frames(connection.take()))
    assert data_frames <= LIMITS.budget
    assert connection.pending_bytes == 0


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param([block(("a", "b" * 20_000))], id="one long field"),
        pytest.param([block() + b"\x40\x01a\x7f\x81\x1e" + bytes([98]) * 4_000 + b"\xbe" * 9_000], id="table bomb"),
        pytest.param([bytes([98]) * 16_000] * 9, id="block without end"),
    ],
)
def test_header_bomb_ends_with_goaway(blocks: list[bytes]) -> None:
    connection = ServerConnection(LIMITS, 0.0)
    connection.receive(GREETING, 0.0)
    pieces = [raw[begin : begin + 16_000] for raw in blocks for begin in range(0, len(raw), 16_000)]
    events, is_ended = [], len(blocks) == 1
    for number, piece in enumerate(pieces):
        kind = FrameType.CONTINUATION if number else FrameType.HEADERS
        flags = END_HEADERS if is_ended and number == len(pieces) - 1 else 0
        events += connection.receive(frame(kind, flags, 1, piece), 0.0)
    assert [type(event) for event in events] == [ConnectionFailed]
    assert connection.is_failed
    assert read_frames(connection.take())[-1].payload[7] == ErrorCode.ENHANCE_YOUR_CALM


def test_client_that_does_not_read_is_refused_further_calls() -> None:
    connection, accepted = ServerConnection(LIMITS, 0.0), 0
    connection.receive(GREETING, 0.0)
    for stream_id in range(1, 801, 2):
        for event in connection.receive(headers(stream_id, end=True), 0.0):
            accepted += isinstance(event, RequestReceived)
            connection.send_data(stream_id, bytes(64 << 10))
        connection.take()
    assert accepted * (64 << 10) < LIMITS.max_pending_bytes + (256 << 10)
    assert connection.pending_bytes < LIMITS.max_pending_bytes + (64 << 10)
    assert not connection.is_failed


def test_working_client_is_never_out_of_budget() -> None:
    """Each call comes with what gRPC's libraries send: a PING, two WINDOW_UPDATEs, and a reset now and then."""
    connection, ok = ServerConnection(LIMITS, 0.0), encode((":status", "200"))
    connection.receive(GREETING, 0.0)
    ping = frame(FrameType.PING, 0, 0, bytes(8))
    for stream_id in range(1, 40_001, 2):
        connection.receive(headers(stream_id) + data(stream_id, b"body", end=True) + ping, 0.0)
        connection.send_header(stream_id, ok)
        connection.send_data(stream_id, b"answer")
        connection.send_trailers(stream_id, ok)
        connection.take()
        connection.receive(frames.window_update(0, 6), 0.0)
        if stream_id % 100 == 1:
            connection.receive(frames.rst_stream(stream_id, ErrorCode.NO_ERROR), 0.0)
    assert not connection.is_failed


def test_budget_grows_with_time() -> None:
    connection, ping = ServerConnection(LIMITS, 0.0), frame(FrameType.PING, 0, 0, bytes(8))
    connection.receive(GREETING, 0.0)
    for number in range(5_000):
        connection.receive(ping, number / 100)
        connection.take()
    assert not connection.is_failed
