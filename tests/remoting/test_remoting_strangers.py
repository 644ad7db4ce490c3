"""What strangers cost a server: memory that goes with the connection, bounds over all of them, and fair turns."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.transport import channel as channel_module
from gantrymq.remoting.transport import dispatcher
from gantrymq.remoting.transport.channel import MAX_ANSWERS_UNDER_WAY, MAX_UNDER_WAY_BYTES, Channel
from gantrymq.remoting.transport.client import RemotingClient, split_address
from gantrymq.remoting.transport.dispatcher import RequestDispatcher
from gantrymq.remoting.transport.limited_log import INTERVAL_S, LINES, LimitedLog
from gantrymq.remoting.transport.server import RemotingServer
from gantrymq.remoting.transport.shared import ServerLimits
from gantrymq.remoting.transport.tls import TlsMode, TlsServer

ECHO, LATER = 1, 2
KNOWN = 256 * 1024
Scenario = Callable[[], Coroutine[Any, Any, None]]
Processor = Callable[[Channel, RemotingCommand], RemotingCommand | Awaitable[Any] | None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Run a scenario on a loop of its own."""
    factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None

    def go(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario(), 60))

    return go


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Nothing but reference counts frees memory: no cycle may hold what a stranger sent."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def echo(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, body=request.body)


async def freed(objects: list[weakref.ref[Any]]) -> None:
    """Wait until nothing refers to the objects any more; the last callbacks of a closed connection take a moment."""
    async with asyncio.timeout(30):
        while any(one() is not None for one in objects):
            await asyncio.sleep(0.001)


async def answers(reader: asyncio.StreamReader, count: int) -> list[int]:
    """The codes of the next answers."""
    connection, received = Connection(), list[RemotingCommand]()
    while len(received) < count:
        received += connection.receive(await reader.read(1 << 16))
    return [one.code for one in received]


class Served:
    """A server with its address."""

    def __init__(self, processors: dict[int, Processor] | None = None, **options: Any) -> None:
        self.server = RemotingServer(RequestDispatcher({ECHO: echo} if processors is None else processors), **options)

    async def __aenter__(self) -> "Served":
        self.address = f"127.0.0.1:{await self.server.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*split_address(self.address))

    async def channels(self, count: int) -> list[Channel]:
        while len(self.server.channels) != count:
            await asyncio.sleep(0.001)
        return list(self.server.channels)

    async def said_to(self, data: bytes) -> str:
        """The reason for which the connection is closed that says so."""
        with capture_logs() as logs:
            reader, writer = await self.connect()
            writer.write(data)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        [line] = [line for line in logs if line["event"] == "channel closed: the received bytes are not a command"]
        return str(line["reason"])


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 was spoken, as gRPC clients do"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP was spoken"),
        (b"*1\r\n$4\r\nPING\r\n", "Redis was spoken"),
        (b"PING\r\n\r\n", "Redis was spoken"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH was spoken"),
        (b"AMQP\x00\x00\x09\x01", "AMQP was spoken"),
        (b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", "MQTT was spoken"),
        (b"\x00\x00\x00\x23\x00\x12\x00\x03" + bytes(31), "Kafka was spoken"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "the PROXY protocol was spoken"),
        (b"\x16\x03\x01\x02\x00" + bytes(100), "TLS was spoken, which is not answered here"),
        (b"\xff" * 16, "a frame of 4294967299 bytes is larger than 16777216"),
    ],
)
def test_foreign_protocol_is_named_in_log(begin: bytes, reason: str) -> None:
    async def scenario() -> None:
        async with Served(tls=TlsServer(TlsMode.DISABLED)) as served:
            assert (await served.said_to(begin)).startswith(reason)

    asyncio.run(scenario())


def test_foreign_protocol_at_enforced_tls_is_named_in_log() -> None:
    async def scenario() -> None:
        async with Served(tls=TlsServer(TlsMode.ENFORCING)) as served:
            assert (await served.said_to(b"PRI * HTTP/2.0\r\n\r\n")).startswith("HTTP/2 was spoken")

    asyncio.run(scenario())


def test_header_length_is_limited_before_reading() -> None:
    async def scenario() -> None:
        async with Served() as served:
            reason = await served.said_to(struct.pack(">II", 15 << 20, KNOWN + 1))
            assert reason == f"a header of {KNOWN + 1} bytes is larger than {KNOWN} (maxRequestHeaderBytes)"
            fields = {"i": "k\x01v\x02" * 8191}  # as many properties as a message can have
            async with asyncio.timeout(60):
                client = RemotingClient()
                answer = await client.invoke(served.address, RemotingCommand(ECHO, ext_fields=fields), 60_000)
                await client.close()
            assert answer.code == 0

    asyncio.run(scenario())


HEADERS = {
    "no JSON": b"[" * 100_000,
    "quotes": b'"' * 100_000,
    "no object": b"[1]",
    "no command": b'{"code":"x","a":[' + b"1," * 50_000 + b"1]}",
    "digits": b'{"code":1,"extFields":' + b"9" * 100_000 + b"}",
    "surrogates": b'{"code":1,"remark":"\\ud800"}',
    "no UTF-8": b"\xff" * 1000,
    "unknown code": b'{"code":99}',
    "fields that are none": b'{"code":1,"extFields":[[]]}',
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.usefixtures("without_collections")
def test_closed_connection_frees_memory_of_refused_frame(run: Callable[[Scenario], None], header: bytes) -> None:
    """An error that is kept holds its traceback, that the frames, those the bytes: a cycle, unless it is cut."""

    async def scenario() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            [channel] = await served.channels(1)
            alive = [weakref.ref(channel), weakref.ref(channel._connection)]
            del channel
            body = bytes(1 << 20)
            writer.write(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            await served.channels(0)
            await freed(alive)

    run(scenario)


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("tail", [b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\x02\x00" + bytes(512), b"\x16\x03"])
def test_closed_connection_frees_memory_of_broken_tls_session(run: Callable[[Scenario], None], tail: bytes) -> None:
    async def scenario() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            [channel] = await served.channels(1)
            alive = [weakref.ref(channel)]
            del channel
            writer.write(tail)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            await served.channels(0)
            await freed(alive)

    run(scenario)


def test_unread_answers_are_bounded_over_all_connections(run: Callable[[Scenario], None]) -> None:
    """None of them reaches the bound of a single connection."""

    async def scenario() -> None:
        limit = 6 << 20
        async with Served(limits=ServerLimits(max_unread_bytes=limit)) as served:
            with capture_logs() as logs:
                deaf = [await served.connect() for _ in range(8)]
                for _, writer in deaf:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    writer.write(encode_command(RemotingCommand(ECHO, body=bytes(6 << 20))))
                for _, writer in deaf:
                    with suppress(ConnectionError):
                        await writer.drain()
                while not logs or any(one.buffered_bytes for one in served.server.channels):
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.05)
                while sum(one.unread_bytes for one in served.server.channels) > limit:  # of those just cut off
                    await asyncio.sleep(0.001)
            assert {line["key"] for line in logs} == {"maxUnreadResponseBytes"}
            client = RemotingClient()
            assert (await client.invoke(served.address, RemotingCommand(ECHO, body=b"x"), 60_000)).body == b"x"
            await client.close()
            for _, writer in deaf:
                writer.transport.abort()

    run(scenario)


def test_pipelined_requests_do_not_delay_other_connections(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        order: list[str] = []

        def work(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            order.append(str(request.remark))
            sum(range(2000))
            return request.response(0)

        count = 3000
        async with Served({ECHO: work}) as served:
            others = [await served.connect() for _ in range(2)]
            greedy = await served.connect()
            await served.channels(3)
            flood = b"".join(encode_command(RemotingCommand(ECHO, remark="greedy", opaque=one)) for one in range(count))
            greedy[1].write(flood)
            while not order:
                await asyncio.sleep(0)
            for reader, writer in others:
                writer.write(encode_command(RemotingCommand(ECHO, remark="other")))
                await reader.readexactly(8)
            assert order.count("other") == 2
            assert order.count("greedy") < count
            connection, answers = Connection(), list[RemotingCommand]()
            while len(answers) < count:
                answers += connection.receive(await greedy[0].read(1 << 16))
            assert [one.opaque for one in answers] == list(range(count))
            for _, writer in (*others, greedy):
                writer.close()

    run(scenario)


class Deaf(asyncio.Transport):
    """A transport that goes nowhere."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1)


class Noted:
    """A handler that notes the opaque of each request."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def connected(self, channel: Channel) -> None: ...

    def requests(self, channel: Channel, requests: list[RemotingCommand]) -> None:
        self.taken += [one.opaque for one in requests]

    def closed(self, channel: Channel, error: Exception | None) -> None: ...


@pytest.mark.parametrize(
    ("body_bytes", "at_once"),
    [
        ([1000] * 16, 16),
        ([20_000], 0),
        ([100, 20_000, 100], 1),
        ([100, 20_000, 100, 20_000], 0),
        ([1000] * 40, 0),
        ([1000] * 8, 8),
    ],
    ids=["short ones", "a long one", "a long one among short ones", "too much", "too many", "few"],
)
def test_long_request_waits_for_turn_and_short_concurrent_ones_do_not(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch, body_bytes: list[int], at_once: int
) -> None:
    monkeypatch.setattr(channel_module, "SLICE_S", 60.0)
    monkeypatch.setattr(channel_module, "TURN_S", 60.0)

    async def scenario() -> None:
        noted = Noted()
        channel = Channel(noted, server=TlsServer())
        channel.connection_made(Deaf())
        requests = [RemotingCommand(ECHO, opaque=n, body=bytes(size)) for n, size in enumerate(body_bytes)]
        channel.data_received(b"".join(map(encode_command, requests)))
        assert noted.taken == list(range(at_once))
        while len(noted.taken) < len(requests):
            await asyncio.sleep(0)
        assert noted.taken == list(range(len(requests)))

    run(scenario)


def test_answers_under_way_are_bounded_for_each_connection(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        open_gate, begun = asyncio.Event(), 0

        async def later(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            nonlocal begun
            begun += 1
            await open_gate.wait()
            return request.response(0)

        count = 3 * MAX_ANSWERS_UNDER_WAY
        async with Served({LATER: later}) as served:
            reader, writer = await served.connect()
            writer.write(b"".join(encode_command(RemotingCommand(LATER)) for _ in range(count)))
            while begun < MAX_ANSWERS_UNDER_WAY:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert begun <= MAX_ANSWERS_UNDER_WAY + 4
            open_gate.set()
            connection, answers = Connection(), list[RemotingCommand]()
            while len(answers) < count:
                answers += connection.receive(await reader.read(1 << 16))
            writer.close()

    run(scenario)


def test_waiting_requests_are_limited_in_bytes(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection is not read any more; and of all together, what is too much is SYSTEM_BUSY."""
    monkeypatch.setattr(dispatcher, "MAX_UNDER_WAY_BYTES", 2 * MAX_UNDER_WAY_BYTES)

    async def scenario() -> None:
        open_gate, begun = asyncio.Event(), 0

        async def later(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            nonlocal begun
            begun += 1
            await open_gate.wait()
            return request.response(0)

        size_bytes, count = 1 << 20, 12
        most = MAX_UNDER_WAY_BYTES // size_bytes
        frames = encode_command(RemotingCommand(LATER, body=bytes(size_bytes))) * count
        async with Served({LATER: later, ECHO: echo}) as served:
            ends = [await served.connect() for _ in range(2)]
            for _, writer in ends:
                writer.write(frames)
            while begun < 2 * most:
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert begun == 2 * most
            third = await served.connect()
            third[1].write(encode_command(RemotingCommand(LATER, body=bytes(size_bytes))))
            assert await answers(third[0], 1) == [ResponseCode.SYSTEM_BUSY]
            third[1].write(encode_command(RemotingCommand(LATER, body=b"small")))
            while begun == 2 * most:
                await asyncio.sleep(0)
            open_gate.set()
            for reader, writer in ends:
                assert await answers(reader, count) == [0] * count
                writer.close()
            assert await answers(third[0], 1) == [0]
            third[1].close()
            assert [one.buffered_bytes for one in served.server.channels] == [0] * len(served.server.channels)

    run(scenario)


def test_slow_requests_of_many_connections_take_turns(run: Callable[[Scenario], None]) -> None:
    """Single requests of many connections: after the first, one of them is answered in a turn, not one of each."""

    async def scenario() -> None:
        order: list[str] = []

        def work(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            order.append(str(request.remark))
            if request.remark == "long":
                sum(range(300_000))
            return request.response(0)

        async with Served({ECHO: work}) as served:
            ends, quick = [await served.connect() for _ in range(30)], await served.connect()
            await served.channels(31)
            slow = encode_command(RemotingCommand(ECHO, remark="long"))
            for _ in range(2):
                order.clear()
                for _, writer in ends:
                    writer.write(slow)
                while not order:
                    await asyncio.sleep(0)
                quick[1].write(encode_command(RemotingCommand(ECHO, remark="quick")))
                assert await answers(quick[0], 1) == [0]
                before = order.index("quick")
                for reader, _ in ends:
                    assert await answers(reader, 1) == [0]
            assert before < len(ends) // 2
            for _, writer in (*ends, quick):
                writer.close()

    run(scenario)


def test_connections_without_request_make_room_for_new_ones(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with Served(limits=ServerLimits(max_connections=3)) as served:
            asking = RemotingClient()
            await asking.invoke(served.address, RemotingCommand(ECHO), 60_000)
            silent = [await served.connect() for _ in range(2)]
            await served.channels(3)
            another = RemotingClient()
            assert (await another.invoke(served.address, RemotingCommand(ECHO), 60_000)).code == 0
            assert await silent[0][0].read() == b""
            assert (await asking.invoke(served.address, RemotingCommand(ECHO), 60_000)).code == 0
            for _, writer in silent:
                writer.close()
            await asking.close()
            await another.close()

    run(scenario)


def test_connection_with_few_descriptors_left_is_closed(run: Callable[[Scenario], None]) -> None:
    """Or the store could open no file."""

    async def scenario() -> None:
        async with Served() as served:
            with socket.socket() as highest:
                served.server._descriptors = highest.fileno()
            reader, writer = await served.connect()
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_unfinished_handshakes_are_limited_in_number_and_time(run: Callable[[Scenario], None]) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01"

    async def scenario() -> None:
        limits = ServerLimits(max_handshakes=2, handshake_seconds=60)
        async with Served(limits=limits, idle_seconds=0.05) as served:
            served.server._idle_seconds = 120
            ends = [await served.connect() for _ in range(4)]
            for _, writer in ends:
                writer.write(hello)
            await served.channels(2)
            for _, writer in ends:
                writer.close()

    run(scenario)


def test_log_lines_of_bad_connections_are_limited() -> None:
    now = [0.0]
    limited = LimitedLog(lambda: now[0])
    with capture_logs() as logs:
        for _ in range(LINES + 500):
            limited.warning("refused", reason="x" * 10_000)
        limited.warning("another kind")
        now[0] += INTERVAL_S
        limited.warning("refused", reason="x")
    assert len(logs) == LINES + 3
    assert max(len(str(line)) for line in logs) < 1000
    assert logs[-2] == {"event": "refused", "left_out": 500, "seconds": INTERVAL_S, "log_level": "warning"}


def test_unknown_request_code_is_answered(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with Served() as served:
            client = RemotingClient()
            answer = await client.invoke(served.address, RemotingCommand(99), 60_000)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            await client.close()

    run(scenario)
