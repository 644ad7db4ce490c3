"""Bytes to commands: both forms, any split of the stream, and whatever strangers send."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remoting_cases import commands

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.codes import RequestCode, SerializeType
from gantrymq.remoting.command import MAX_FRAME_BYTES, CommandRun, RemotingCommand, encode_command, encode_head
from gantrymq.remoting.connection import Connection, PendingRequests
from gantrymq.remoting.frame_header import MAX_EXT_FIELDS, encode_ext_fields


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header) | serialize_type << 24) + header + body


def only(data: bytes) -> RemotingCommand:
    [command] = Connection().receive(data)
    return command


@given(commands())
def test_received_command_equals_sent_one(command: RemotingCommand) -> None:
    received = only(encode_command(command))
    assert received == command
    assert received.serialize_type == command.serialize_type


@given(st.lists(commands(), min_size=1, max_size=5), st.data())
def test_stream_cut_anywhere_decodes_same_commands(sent: list[RemotingCommand], data: st.DataObject) -> None:
    stream = b"".join(map(encode_command, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    connection = Connection()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += connection.receive(stream[start:end])
    assert received == sent
    assert connection.buffered_bytes == 0


def test_frame_received_byte_by_byte_is_decoded() -> None:
    sent = [RemotingCommand(code, body=bytes(code)) for code in (0, 10, 300)]
    connection = Connection()
    received = [one for byte in b"".join(map(encode_command, sent)) for one in connection.receive(bytes([byte]))]
    assert received == sent


def test_large_frame_in_many_chunks_is_joined_once() -> None:
    command = RemotingCommand(10, body=random.Random(1).randbytes(8 << 20))
    stream = encode_command(command)
    connection = Connection()
    received = []
    for start in range(0, len(stream), 65536):
        assert not received
        received = connection.receive(stream[start : start + 65536])
    assert received == [command]


@pytest.mark.parametrize("sizes", [[2], [2, 20_000]])
def test_buffered_bytes_counts_memory_of_fragmented_frame(sizes: list[int]) -> None:
    """Strangers are bounded by ``buffered_bytes``; each piece by itself costs a page of an asyncio socket."""
    announced = struct.pack(">II", 15 << 20, 100)
    connection = Connection()
    connection.receive(announced)
    tracemalloc.start()
    try:
        while connection.buffered_bytes < 1 << 17:
            for size in sizes:
                connection.receive(bytes(size))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.25 * connection.buffered_bytes


def test_large_and_small_pieces_join_in_order(rng: random.Random) -> None:
    command = RemotingCommand(10, body=rng.randbytes(1 << 20))
    stream = encode_command(command)
    connection, received, position = Connection(), list[RemotingCommand](), 0
    while position < len(stream):
        piece = stream[position : position + rng.choice([1, 100, 5000, 20_000, 50_000])]
        received += connection.receive(piece)
        position += len(piece)
    assert received == [command]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "larger than"),
        (struct.pack(">II", MAX_FRAME_BYTES - 3, 10), "larger than"),
        (struct.pack(">II", 0xFFFFFFFF, 0), "larger than"),
        (struct.pack(">II", 3, 0), "a header of 0 bytes in a frame of 7"),
        (struct.pack(">II", 0, 0), "a header of 0 bytes in a frame of 4"),
        (struct.pack(">II", 10, 7), "a header of 7 bytes in a frame of 14"),
        (frame(b"{}", serialize_type=2), "no serialize type has the number 2"),
        (frame(b"{"), "no JSON"),
        (frame(b"[1]"), "no object"),
        (frame(b""), "no JSON"),
        (frame(b'{"code":"x"}'), "no command"),
        (frame(b'{"code":99999999999999999999}'), "no command"),
        (frame(b'{"code":1,"extFields":3} '), None),
        (frame(b"[" * 100_000), "no JSON"),
        (frame(b'{"a":' * 100_000), "no JSON"),
        (frame(b'{"' + b'\\"' * 100_000), "no JSON"),
        (frame(b"", serialize_type=1), "a header of 0 bytes is too short"),
        (frame(struct.pack(">hBhiii", 1, 0, 0, 0, 0, 100) + bytes(4), serialize_type=1), "a remark of 100 bytes"),
        (frame(struct.pack(">hBhiii", 1, 0, 0, 0, 0, -1) + bytes(4), serialize_type=1), "a remark of -1 bytes"),
        (frame(struct.pack(">hBhiiiI", 1, 0, 0, 0, 0, 0, 9) + bytes(8), serialize_type=1), "extFields of 9 bytes"),
    ],
)
def test_invalid_frame_is_refused_with_one_line(data: bytes, reason: str | None) -> None:
    if reason is None:  # the frame is sound, its extFields are not: found when somebody asks for them
        with pytest.raises(RemotingCommandError, match="no object"):
            assert only(data).ext_fields
        return
    with pytest.raises(RemotingCommandError, match=reason):
        Connection().receive(data)


def test_whole_frames_before_invalid_one_are_returned() -> None:
    sent = [RemotingCommand(10, opaque=number, body=b"x") for number in range(5)]
    connection = Connection()
    assert connection.receive(b"".join(map(encode_command, sent)) + b"GET / HTTP/1.1\r\n") == sent
    assert "larger than" in str(connection.error)


@pytest.mark.parametrize(
    "entries",
    [b"\x00", b"\x00\x05abc", b"\x00\x01a\x00\x00", b"\x00\x01a\x7f\xff\xff\xffx", b"\x00\x01a\xff\xff\xff\xffx"],
)
def test_binary_ext_fields_never_reach_beyond_themselves(entries: bytes) -> None:
    header = struct.pack(">hBhiiiI", 1, 0, 0, 0, 0, 0, len(entries)) + entries
    with pytest.raises(RemotingCommandError, match="extFields"):
        assert only(frame(header, serialize_type=1)).ext_fields


def test_binary_ext_fields_above_limit_are_refused() -> None:
    entries = encode_ext_fields({str(number): "x" for number in range(MAX_EXT_FIELDS + 2)})
    header = struct.pack(">hBhiiiI", 1, 0, 0, 0, 0, 0, len(entries)) + entries
    with pytest.raises(RemotingCommandError, match="extFields"):
        assert only(frame(header, serialize_type=1)).ext_fields


def test_arbitrary_bytes_decode_or_raise_command_error(rng: random.Random) -> None:
    """Bytes of sound frames, damaged at random: only a RemotingCommandError may come of them."""
    sound = [
        encode_command(RemotingCommand(code, ext_fields={"a": "1", "b": "ü"}, body=b"body", serialize_type=form))
        for code in (10, 310)
        for form in SerializeType
    ]
    for _ in range(3000):
        data = bytearray(rng.choice(sound) + rng.choice(sound))
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            for command in Connection().receive(bytes(data)):
                assert isinstance(command.ext_fields, dict)
        except RemotingCommandError:
            continue


def test_code_above_16_bits_is_sent_as_json() -> None:
    command = RemotingCommand(RequestCode.POP_MESSAGE, serialize_type=SerializeType.ROCKETMQ)
    assert only(encode_command(command)).code == RequestCode.POP_MESSAGE


def test_frame_above_limit_of_peer_is_not_sent() -> None:
    with pytest.raises(RemotingCommandError, match="larger than"):
        encode_head(RemotingCommand(10), MAX_FRAME_BYTES)


def test_json_of_other_clients_is_decoded() -> None:
    header = (
        b'{"code":11,"language":"CPP","opaque":3,"extFields":{"queueId":2,"suspend":true,"none":null,"t":"a\x01b"}}'
    )
    command = only(frame(header))
    assert command.ext_fields == {"queueId": "2", "suspend": "true", "t": "a\x01b"}
    assert (command.code, command.opaque, command.language) == (11, 3, 1)


def test_empty_value_in_binary_header_decodes_to_none() -> None:
    command = RemotingCommand(10, ext_fields={"a": "", "b": "x"}, serialize_type=SerializeType.ROCKETMQ)
    assert only(encode_command(command)).ext_fields == {"b": "x"}


def test_pending_requests_end_once() -> None:
    pending: PendingRequests[str] = PendingRequests(0x7FFFFFFF)
    late, soon, answered = pending.add("late", 30), pending.add("soon", 10), pending.add("answered", 5)
    assert (late, soon, answered) == (0x7FFFFFFF, 0, 1)
    assert pending.next_deadline() == 5
    assert pending.take(answered) == "answered"
    assert pending.take(answered) is None
    assert pending.next_deadline() == 10
    assert pending.expired(9.9) == []
    assert pending.expired(10) == ["soon"]
    assert pending.take(soon) is None
    assert pending.take_all() == ["late"]
    assert len(pending) == 0
    assert pending.next_deadline() is None


def test_answered_requests_leave_pending_table() -> None:
    pending: PendingRequests[int] = PendingRequests()
    pending.add(-1, 1e9)
    for number in range(10_000):
        assert pending.take(pending.add(number, 1e6 + number)) == number
    assert len(pending._deadlines) < 2000
    assert pending.expired(2e9) == [-1]


def test_opaque_in_use_is_skipped() -> None:
    pending: PendingRequests[str] = PendingRequests(5)
    assert pending.add("first", 1) == 5
    pending._next = 5
    assert pending.add("second", 1) == 6


def test_too_long_body_in_pieces_is_not_buffered(rng: random.Random) -> None:
    """The request comes as soon as its header is there, and what follows the body is read as ever."""
    limits = {1: 100_000, 2: 1 << 20}
    long = encode_command(RemotingCommand(1, opaque=1, body=bytes(300_000)))
    response = encode_command(RemotingCommand(1, opaque=2, flag=1, body=bytes(300_000)))
    allowed = encode_command(RemotingCommand(2, opaque=3, body=bytes(300_000)))
    small = encode_command(RemotingCommand(2, opaque=4, body=b"x"))
    stream = b"".join((small, long, small, response, long, allowed, small))
    wanted = [(4, 1, 0), (1, 0, 300_000), (4, 1, 0), (2, 300_000, 0), (1, 0, 300_000), (3, 300_000, 0), (4, 1, 0)]
    for _ in range(30):
        connection, received = Connection(max_body_bytes=limits.__getitem__), list[RemotingCommand]()
        position = 0
        while position < len(stream):
            step = rng.choice([1, 7, 100, 5_000, 70_000])
            most = rng.choice([0, 1, 2, 1000])
            received += connection.receive(stream[position : position + step], most)
            position += step
            while connection.has_more:
                received += connection.receive(b"", max(most, 1))
        assert [(one.opaque, len(one.body), one.refused_bytes) for one in received] == wanted
        assert connection.buffered_bytes == 0
    connection = Connection(max_body_bytes=limits.__getitem__)
    [refused] = connection.receive(long[:5_000])
    assert (refused.refused_bytes, connection.buffered_bytes) == (300_000, 0)
    assert connection.receive(long[5_000:200_000]) == []
    assert (connection.buffered_bytes, connection.has_more) == (0, False)
    [after] = connection.receive(long[200_000:] + small)
    assert after.opaque == 4


def test_short_work_of_producer_is_taken_together_and_other_requests_alone() -> None:
    codes = [int(code) for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION)] * 5
    stream = b"".join(encode_command(RemotingCommand(code)) for code in [*codes, 34, 34, *codes[:2]])
    connection = Connection()
    assert connection.receive(stream, 0) == []
    counts = []
    while connection.has_more:
        counts.append(len(connection.receive(b"", 1)))
        assert connection.receive(b"", 0) == []
    assert counts == [8, 3, 1, 2]


def test_run_is_taken_without_the_request_behind_it() -> None:
    code = int(RequestCode.SEND_MESSAGE_V2)
    size = len(send := encode_command(RemotingCommand(code)))

    def find(data: bytes, begin: int) -> CommandRun | None:
        return CommandRun(code, data, begin, begin + 2 * size)

    connection = Connection(find_runs={code: (find,)})
    assert [type(one) for one in connection.receive(send * 7, 1)] == [RemotingCommand, CommandRun]
    assert [len(connection.receive(b"", 1)) for _ in range(2)] == [1, 1]
    assert not connection.has_more
