"""gRPC over HTTP/2 on sockets: calls, deadlines, large messages, and clients that cost their own connection only."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from gantrymq.grpc.transport.connection import GrpcCall, GrpcService, Method
from gantrymq.grpc.transport.framing import CallAborted, Grants, GrpcStatus, Inbox, timeout_s, trailers
from gantrymq.grpc.transport.port import GrpcPort
from gantrymq.http2 import frames
from gantrymq.http2.frames import ErrorCode, FrameType, frame
from gantrymq.http2.limits import Limits
from gantrymq.remoting.transport.tls import TlsMode, TlsServer
from http2_peer import GREETING, Frame, data, fields_of, headers, message, read_frames

MAX_BYTES, DEFAULTS = 4 << 20, Limits()


class Server:
    """Methods that a test calls, and how many calls of them have begun and are under way."""

    def __init__(self, limits: Limits) -> None:
        self.begun = self.running = 0
        methods = {
            "/x/Echo": Method(self.echo),
            "/x/Wait": Method(self.wait),
            "/x/Many": Method(self.many),
            "/x/Fail": Method(self.fail),
            "/x/Stream": Method(self.stream, has_stream=True),
        }
        service = GrpcService(methods, MAX_BYTES, 120.0, limits)
        self.grpc = GrpcPort(service, TlsServer(TlsMode.DISABLED))
        self.port = 0

    async def echo(self, call: GrpcCall) -> None:
        await call.send(call.request)

    async def wait(self, call: GrpcCall) -> None:
        self.begun, self.running = self.begun + 1, self.running + 1
        try:
            await asyncio.sleep(3_600)
        finally:
            self.running -= 1

    async def many(self, call: GrpcCall) -> None:
        for self.begun in range(1, int(call.request) + 1):
            await call.send(bytes(32 << 10))

    async def fail(self, call: GrpcCall) -> None:
        raise CallAborted(GrpcStatus.INTERNAL, "ä\n100%")

    async def stream(self, call: GrpcCall) -> None:
        self.running += 1
        try:
            while (request := await call.next_request()) is not None:
                await call.send(request)
        finally:
            self.running -= 1

    @property
    def connections(self) -> list[Any]:
        return list(self.grpc._connections)

    def check(self, later_s: float) -> None:
        """Let the port see a later time."""
        for connection in self.connections:
            connection.check(asyncio.get_running_loop().time() + later_s)


@asynccontextmanager
async def serving(limits: Limits = DEFAULTS) -> AsyncIterator[Server]:
    server = Server(limits)
    server.port = await server.grpc.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.grpc.abandon()
        await until(lambda: not server.connections)


@asynccontextmanager
async def channel_to(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        yield channel


@asynccontextmanager
async def raw_client(server: Server) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(GREETING)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


async def read_to_end(reader: asyncio.StreamReader) -> list[Frame]:
    async with asyncio.timeout(30):
        return read_frames(await reader.read(-1))


async def frames_until(reader: asyncio.StreamReader, last: Callable[[Frame], bool]) -> list[Frame]:
    received: list[Frame] = []
    async with asyncio.timeout(30):
        while not received or not last(received[-1]):
            head = await reader.readexactly(frames.HEAD_BYTES)
            received += read_frames(head + await reader.readexactly(int.from_bytes(head[:3], "big")))
    return received


def is_trailers(received: Frame) -> bool:
    return received.kind == FrameType.HEADERS and bool(received.flags & frames.END_STREAM)


# Calls


@pytest.mark.parametrize("size_bytes", [0, 1, 70_000, MAX_BYTES])
@pytest.mark.asyncio
async def test_messages_of_all_sizes_are_echoed_side_by_side(size_bytes: int) -> None:
    async with serving() as server, channel_to(server) as channel:
        body, call = bytes(size_bytes), channel.unary_unary("/x/Echo")
        assert await asyncio.gather(*(call(body, timeout=60) for _ in range(24))) == [body] * 24
        stream = channel.stream_stream("/x/Stream")(iter([body] * 5))
        assert [one async for one in stream] == [body] * 5
        (connection,) = server.connections
        assert connection._unfinished_bytes == connection._http.pending_bytes == connection._http.open_streams == 0
        assert connection._grants._free_bytes == max(64 << 20, MAX_BYTES)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.asyncio
async def test_compressed_request_is_read(compression: Any) -> None:
    async with serving() as server, channel_to(server) as channel:
        body = b"a" * 100_000
        assert await channel.unary_unary("/x/Echo")(body, compression=compression, timeout=30) == body


@pytest.mark.asyncio
async def test_error_has_status_and_any_text() -> None:
    async with serving() as server, channel_to(server) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary("/x/Fail")(b"")
        assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.INTERNAL, "ä\n100%")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary("/x/Echo")(bytes(MAX_BYTES + 1))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.asyncio
async def test_call_ends_at_its_deadline_or_with_its_client() -> None:
    async with serving() as server, channel_to(server) as channel:
        async with raw_client(server) as (reader, writer):
            writer.write(headers(1, ("grpc-timeout", "20m"), path="/x/Wait") + data(1, message(b""), end=True))
            *_, last = await frames_until(reader, is_trailers)
            assert fields_of(last)["grpc-status"] == str(grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
        call = channel.unary_unary("/x/Wait")(b"")
        await until(lambda: server.begun == 2)
        call.cancel()
        await until(lambda: server.running == 0)


@pytest.mark.asyncio
async def test_closed_port_ends_running_calls_with_unavailable() -> None:
    async with serving() as server, channel_to(server) as channel:
        call = channel.unary_unary("/x/Wait")(b"")
        await until(lambda: server.running == 1)
        await server.grpc.close(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.running == 0


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (headers(1, end=True), "13 Half-closed without a request"),
        (headers(1) + data(1, message(b"a")[:-1], end=True), "13 Half-closed without a request"),
        (headers(1) + data(1, message(b"a") * 2, end=True), "13 Too many requests"),
        (headers(1) + data(1, b"\1" + message(b"a")[1:], end=True), "13 a compressed message without grpc-encoding"),
        (headers(1, ("grpc-encoding", "snappy")), "12 Can't find decompressor for snappy"),
        (headers(1, path="/x/None"), "12 Method not found: x/None"),
        (headers(1) + data(1, b"\0\xff\xff\xff\xff"), f"8 gRPC message exceeds maximum size {MAX_BYTES}: {2**32 - 1}"),
    ],
    ids=["nothing", "part", "two", "compressed", "encoding", "method", "length"],
)
@pytest.mark.asyncio
async def test_damaged_request_is_refused(request_bytes: bytes, expected: str) -> None:
    async with serving() as server, raw_client(server) as (reader, writer):
        writer.write(request_bytes)
        *_, last = await frames_until(reader, is_trailers)
        fields = fields_of(last)
        assert f"{fields['grpc-status']} {fields['grpc-message']}" == expected.replace("%", "%25")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (gzip.compress(bytes(64 << 20)), "exceeds"),
        (gzip.compress(b"a")[:-9], "a part"),
        (zlib.compress(b"a"), "is not"),
    ],
    ids=["large", "cut", "another format"],
)
def test_bad_compressed_message_is_refused_within_limit(body: bytes, text: str) -> None:
    inbox = Inbox("gzip", MAX_BYTES)
    inbox.add(b"\1" + message(body)[1:])
    with pytest.raises(CallAborted, match=text):
        inbox.next()


def test_timeouts_are_read() -> None:
    texts = {"1S": 1.0, "99999999n": 0.099999999, "2H": 7200.0, "5m": 0.005, "7u": 7e-6, "3M": 180.0}
    assert {text: timeout_s(text) for text in texts} == pytest.approx(texts)
    assert [timeout_s(text) for text in ("", "S", "1", "-1S", "123456789S", "١S", "1s")] == [None] * 7


def test_grants_wait_for_earlier_messages() -> None:
    grants = Grants(100)
    assert list(grants.request(1, 60)) == [(1, 60)]
    assert list(grants.request(3, 60)) == list(grants.request(5, 10)) == []
    assert list(grants.release(1)) == [(3, 60), (5, 10)]
    assert list(grants.release(5)) == list(grants.release(3)) == list(grants.release(7)) == []
    assert list(grants.request(9, 100)) == [(9, 100)]


# Hostile clients


@pytest.mark.asyncio
async def test_rapid_reset_starts_bounded_calls_and_others_are_served() -> None:
    async with serving() as server, channel_to(server) as channel, raw_client(server) as (reader, writer):
        for stream_id in range(1, 20_001, 2):
            writer.write(headers(stream_id, path="/x/Wait") + data(stream_id, message(b""), end=True))
            writer.write(frames.rst_stream(stream_id, ErrorCode.CANCEL))
        assert await channel.unary_unary("/x/Echo")(b"other", timeout=30) == b"other"
        received = await read_to_end(reader)
        assert (received[-1].kind, received[-1].payload[7]) == (FrameType.GOAWAY, ErrorCode.ENHANCE_YOUR_CALM)
        assert server.begun <= DEFAULTS.budget + 1
        assert server.running == 0
        assert await channel.unary_unary("/x/Echo")(b"again", timeout=30) == b"again"


@pytest.mark.asyncio
async def test_streams_beyond_the_limit_are_refused_and_end_the_connection() -> None:
    limits = Limits(max_streams=100)
    async with serving(limits) as server, channel_to(server) as channel, raw_client(server) as (reader, writer):
        for stream_id in range(1, 20_001, 2):
            writer.write(headers(stream_id, path="/x/Stream"))
        received = await read_to_end(reader)
        refused = [one for one in received if one.kind == FrameType.RST_STREAM]
        assert {one.payload[3] for one in refused} == {ErrorCode.REFUSED_STREAM}
        assert len(refused) <= limits.budget
        await until(lambda: server.running == 0)
        assert await channel.unary_unary("/x/Echo")(b"other", timeout=30) == b"other"


@pytest.mark.asyncio
async def test_answers_that_are_not_read_stop_their_call() -> None:
    async with serving() as server, raw_client(server) as (_, writer):
        writer.write(headers(1, path="/x/Many") + data(1, message(b"1000"), end=True))
        await until(lambda: server.begun > 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert server.begun < 10  # of 32 KiB each; the client's window has 64 KiB
        (connection,) = server.connections
        assert connection._http.pending_bytes < 256 << 10
        server.check(0)
        server.check(59)
        assert server.connections
        server.check(61)
        await until(lambda: not server.connections)


@pytest.mark.asyncio
async def test_pings_that_are_answered_to_nobody_end_the_connection() -> None:
    limits = Limits(budget=1_000_000)
    async with serving(limits) as server, raw_client(server) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        ping = frame(FrameType.PING, 0, 0, bytes(8)) * 4_000

        async def flood() -> None:
            while True:
                writer.write(ping)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await flood()
        await until(lambda: not server.connections)


@pytest.mark.asyncio
async def test_unfinished_messages_are_bounded() -> None:
    """Each stream sends what its window allows of a message that never ends."""
    async with serving() as server, raw_client(server) as (reader, writer):
        part = b"\0" + (65_536).to_bytes(4, "big") + bytes(65_536 - 5)
        piece = [part[begin : begin + 16_384] for begin in range(0, len(part), 16_384)]
        for stream_id in range(1, 4_001, 2):
            writer.write(headers(stream_id) + b"".join(data(stream_id, one) for one in piece))
            await writer.drain()
            (connection,) = server.connections
            assert connection._unfinished_bytes <= connection._max_unfinished_bytes + 65_536
        assert connection._unfinished_bytes <= connection._max_unfinished_bytes
        statuses = await frames_until(reader, is_trailers)
        assert fields_of(statuses[-1])["grpc-status"] == str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])


@pytest.mark.asyncio
async def test_silent_and_idle_connections_end() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with raw_client(server) as (idle_reader, idle_writer):
            idle_writer.write(headers(1) + data(1, message(b""), end=True))
            await frames_until(idle_reader, is_trailers)
            server.check(9)
            await asyncio.sleep(0)
            assert len(server.connections) == 2
            server.check(11)
            assert await reader.read() != b"?"
            assert len(server.connections) == 1
            server.check(121)
            received = await read_to_end(idle_reader)
            assert (received[-1].kind, received[-1].payload[7]) == (FrameType.GOAWAY, ErrorCode.NO_ERROR)
        writer.close()


@pytest.mark.parametrize(("method", "status"), [("GET", "405"), ("POST", "415")])
@pytest.mark.asyncio
async def test_request_that_is_no_call_gets_status_of_http(method: str, status: str) -> None:
    async with serving() as server, raw_client(server) as (reader, writer):
        writer.write(headers(1, method=method, content_type="text/html", end=True))
        first, *_ = [one for one in await frames_until(reader, is_trailers) if one.kind == FrameType.HEADERS]
        assert fields_of(first)[":status"] == status


def test_trailers_of_long_text_fit_a_frame() -> None:
    assert len(trailers(GrpcStatus.INTERNAL, "€" * 100_000, is_only=True)) < frames.MAX_FRAME_BYTES
