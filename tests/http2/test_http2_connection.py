"""The server's side of HTTP/2: events of bytes, windows, and header blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.http2 import frames
from gantrymq.http2.connection import ConnectionFailed, DataReceived, RequestReceived, ServerConnection, StreamReset
from gantrymq.http2.frames import END_HEADERS, END_STREAM, MAX_WINDOW_BYTES, ErrorCode, FrameType, Setting, frame
from gantrymq.http2.headers import HeaderReader, encode
from gantrymq.http2.limits import Limits
from http2_peer import CALL, GREETING, Frame, block, data, headers, read_frames

SMALL = Limits(max_streams=4, stream_window_bytes=1_000, connection_window_bytes=70_000)


def greeted(limits: Limits = SMALL, *settings: tuple[Setting, int]) -> ServerConnection:
    connection = ServerConnection(limits, 0.0)
    assert connection.receive(frames.PREFACE + frames.settings(dict(settings)), 0.0) == []
    connection.take()
    return connection


def sent(connection: ServerConnection) -> list[Frame]:
    return read_frames(connection.take())


def test_call_gives_events_and_response_frames() -> None:
    connection = greeted()
    begun, body = connection.receive(headers(1) + data(1, b"abc", end=True), 0.0)
    assert isinstance(begun, RequestReceived)
    assert (begun.stream_id, begun.request.path, begun.is_ended) == (1, "/x/Echo", False)
    assert begun.request.fields == {"content-type": "application/grpc", "te": "trailers"}
    assert body == DataReceived(1, b"abc", True)
    connection.send_header(1, encode((":status", "200")))
    connection.send_data(1, b"defg")
    connection.send_trailers(1, encode(("grpc-status", "0")))
    assert [(one.kind, one.flags, one.stream_id) for one in sent(connection)] == [
        (FrameType.HEADERS, END_HEADERS, 1),
        (FrameType.DATA, 0, 1),
        (FrameType.HEADERS, END_HEADERS | END_STREAM, 1),
    ]
    assert connection.open_streams == 0


def test_data_waits_for_both_windows_and_streams_take_turns() -> None:
    connection = greeted(SMALL, (Setting.INITIAL_WINDOW_SIZE, 40_000))
    connection.receive(headers(1, end=True) + headers(3, end=True), 0.0)
    for stream_id in (1, 3):
        connection.send_data(stream_id, bytes(50_000))
    first = sent(connection)
    assert sum(len(one.payload) for one in first) == 65_535  # the connection's window
    assert [one.stream_id for one in first][:4] == [1, 3, 1, 3]
    connection.receive(frames.window_update(0, 100_000), 0.0)
    assert sum(len(one.payload) for one in sent(connection)) == 2 * 40_000 - 65_535
    connection.receive(frames.window_update(3, 5), 0.0)
    assert [(one.stream_id, len(one.payload)) for one in sent(connection)] == [(3, 5)]
    connection.receive(frames.settings({Setting.INITIAL_WINDOW_SIZE: 39_000}), 0.0)  # the windows become negative
    connection.receive(frames.window_update(1, 900), 0.0)
    assert [one.kind for one in sent(connection)] == [FrameType.SETTINGS]
    connection.receive(frames.window_update(1, 101), 0.0)
    assert [(one.stream_id, len(one.payload)) for one in sent(connection)] == [(1, 1)]
    assert connection.pending_bytes == 100_000 - 80_000 - 5 - 1


def test_small_pieces_share_frames_up_to_the_window() -> None:
    connection = greeted(SMALL, (Setting.INITIAL_WINDOW_SIZE, 25))
    connection.receive(headers(1, end=True), 0.0)
    for letter in b"abcd":
        connection.send_data(1, bytes([letter]) * 10)
    assert [one.payload for one in sent(connection)] == [b"a" * 10 + b"b" * 10 + b"c" * 5]
    connection.receive(frames.window_update(1, 100), 0.0)
    assert [one.payload for one in sent(connection)] == [b"c" * 5 + b"d" * 10]


def test_request_that_exceeds_its_window_is_reset() -> None:
    connection = greeted()
    events = connection.receive(headers(1) + data(1, bytes(1_001)), 0.0)
    assert events[1:] == [StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)]
    events = connection.receive(data(1, bytes(999)) + headers(3), 0.0)  # what the client sent before it knew
    assert [type(event) for event in events] == [RequestReceived]


def test_early_response_ends_unfinished_request_and_forgives_its_rest() -> None:
    connection = greeted()
    connection.receive(headers(1), 0.0)
    connection.send_trailers(1, encode((":status", "200")))
    assert [one.kind for one in sent(connection)] == [FrameType.HEADERS, FrameType.RST_STREAM]
    assert connection.receive(data(1, bytes(16_000), end=True), 0.0) == []
    assert not connection.is_failed


def test_closed_connection_serves_begun_calls_and_ignores_later_ones() -> None:
    connection = greeted()
    connection.receive(headers(1), 0.0)
    connection.close()
    assert sent(connection) == [Frame(FrameType.GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0the server is closing")]
    assert connection.receive(headers(3) + data(1, b"", end=True), 0.0) == [DataReceived(1, b"", True)]
    assert not connection.is_finished
    connection.send_trailers(1, encode((":status", "200")))
    connection.take()
    assert connection.is_finished


# Header blocks

NAMES = st.sampled_from(["x-mq-client-id", "x-mq-request-id", "x-mq-language", "a"])
VALUES = st.sampled_from(["", "a", "b", "0123456789" * 30, "0123456789" * 500])
EXTRA = st.lists(st.tuples(NAMES, VALUES), max_size=4, unique_by=lambda field: field[0])


@given(st.lists(st.tuples(EXTRA, st.booleans(), st.sampled_from([None, 0, 100, 4096])), max_size=12))
def test_requests_of_changing_table_equal_sent_ones(calls: list[Any]) -> None:
    """The same bytes mean other fields after the dynamic table has changed."""
    encoder, reader = Encoder(), HeaderReader(16 << 10)
    for extra, huffman, table_bytes in calls:
        if table_bytes is not None:
            encoder.header_table_size = table_bytes
        raw = encoder.encode([*CALL, *extra], huffman=huffman)
        request = reader.read_request(raw)
        assert request.fields == {"content-type": "application/grpc", "te": "trailers", **dict(extra)}


def test_equal_block_after_change_of_table_is_decoded_again() -> None:
    reader = HeaderReader(16 << 10)
    prefix = block()
    same = prefix + b"\xbe"  # the newest entry of the dynamic table
    reader.read_request(prefix + b"\x40\x01a\x01b")
    assert [reader.read_request(same).fields["a"] for _ in range(2)] == ["b", "b"]
    reader.read_request(prefix + b"\x40\x01a\x01c")
    assert reader.read_request(same).fields["a"] == "c"


STRINGS = [b"\x01a\x01b", b"\x01b\x82\x1c\x64", b"\x01A\x00", b"\x02:x\x01c", b"\x01\x7f\x80\x1f" + bytes(4_000)]
LITERALS = st.builds(
    lambda kind, strings: bytes([kind]) + strings, st.sampled_from([0, 16, 64]), st.sampled_from(STRINGS)
)
PIECES = st.one_of(
    LITERALS,
    st.builds(lambda index: bytes([0x80 | index]), st.integers(0, 126)),  # a field of a table
    st.builds(lambda index: bytes([0x40 | index, 1, 98]), st.integers(1, 62)),  # a name of a table
    st.sampled_from([b"\xff\x00", b"\xff\x01", b"\x20", b"\x3f\x21", b"\x3f\xe1\x1f", b"\x3f\xe2\x1f"]),
    st.binary(max_size=3),
)


@given(st.lists(st.lists(PIECES, max_size=6).map(b"".join), max_size=6))
def test_fields_of_any_blocks_equal_those_of_hpack(blocks: list[bytes]) -> None:
    decoder, reader = Decoder(16 << 10), HeaderReader(16 << 10)
    for raw in blocks:
        try:
            expected = [tuple(field) for field in decoder.decode(raw, raw=True)]
        except HPACKError:
            with pytest.raises(frames.ConnectionFault):
                reader.skip(raw)
            return
        read = [(field.raw_name, field.value) for field in reader._decode(raw)]
        assert read == [(name, value.decode("utf-8", "replace")) for name, value in expected]


# Any bytes

FRAMES = st.builds(
    frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D]),
    st.sampled_from([0, 1, 2, 3, 5, 7, MAX_WINDOW_BYTES]),
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([block(), block()[:20], b"\0\0\0\4\0\0\0\0", b"\0\0\0\1", b"\x7f\xff\xff\xff"]),
    ),
)
CONVERSATIONS = st.lists(FRAMES, max_size=20).map(lambda made: GREETING + b"".join(made))


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda raw: GREETING + raw), CONVERSATIONS))
def test_any_bytes_raise_nothing_and_leave_bounded_state(raw: bytes) -> None:
    connection = ServerConnection(SMALL, 0.0)
    events = connection.receive(raw, 0.0)
    assert connection.is_failed == any(isinstance(event, ConnectionFailed) for event in events)
    assert connection.open_streams <= SMALL.max_streams
    read_frames(connection.take())
    assert connection.is_failed or len(connection._input) <= frames.MAX_FRAME_BYTES + frames.HEAD_BYTES


@given(CONVERSATIONS, st.lists(st.integers(0, 300), max_size=8))
def test_split_of_input_changes_no_event(raw: bytes, cuts: list[int]) -> None:
    whole, parts = ServerConnection(SMALL, 0.0), ServerConnection(SMALL, 0.0)
    bounds = [0, *sorted(cuts), len(raw)]
    pieces = [raw[begin:end] for begin, end in pairwise(bounds)]
    assert [event for piece in pieces for event in parts.receive(piece, 0.0)] == whole.receive(raw, 0.0)
    assert parts.take() == whole.take()
