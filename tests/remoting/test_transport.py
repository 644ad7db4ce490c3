"""Channels over real sockets: answers, time-outs, strangers, slow readers, TLS. uvloop and asyncio alike."""

import asyncio
import random
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gantrymq.client.connection.blocking_client import BlockingConnection
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import SystemClock
from gantrymq.errors import (
    ConfigError,
    RemotingCommandError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from gantrymq.remoting.transport import channel as channel_module
from gantrymq.remoting.transport import client as client_module
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient, split_address
from gantrymq.remoting.transport.dispatcher import RequestDispatcher
from gantrymq.remoting.transport.self_signed import self_signed_context
from gantrymq.remoting.transport.server import RemotingServer
from gantrymq.remoting.transport.shared import ServerLimits
from gantrymq.remoting.transport.tls import TlsMode, TlsServer, TlsSession, tls_client, tls_server

TLS_ALERT = b"\x15"
CHECK_SELF_SIGNATURE = 0x4000  # X509_V_FLAG_CHECK_SS_SIGNATURE: OpenSSL believes a certificate it trusts without it
TLS = Path(__file__).parent / "tls"
CERTIFICATE = {"tls.server.certPath": str(TLS / "server.pem"), "tls.server.keyPath": str(TLS / "server.key")}
ECHO, NEVER, FAIL, LATER, ASK_BACK, CLOSE = 1, 2, 3, 4, 5, 6
Scenario = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Run a scenario on a loop of its own."""
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def go(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario(), 60))

    return go


def echo(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, body=request.body)


def fail(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    raise RemotingCommandError("the custom field <topic> is null")


async def later(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return request.response(0, "later")


async def ask_back(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    answer = await channel.invoke(RemotingCommand(ECHO, body=b"who are you"), 60_000)
    return request.response(0, body=answer.body)


def never(channel: Channel, request: RemotingCommand) -> None:
    return None


def close(channel: Channel, request: RemotingCommand) -> None:
    channel.close()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[RemotingServer, str]]:
    processors: dict[int, Callable[[Channel, RemotingCommand], RemotingCommand | Awaitable[Any] | None]] = {
        ECHO: echo, NEVER: never, FAIL: fail, LATER: later, ASK_BACK: ask_back, CLOSE: close,
    }  # fmt: skip
    server = RemotingServer(RequestDispatcher(processors), **options)
    port = await server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.close()


@asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(**options)
    try:
        yield client
    finally:
        await client.close()


def test_requests_are_answered(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), calling() as client:
            bodies = [bytes([number]) * number for number in range(200)]
            answers = await asyncio.gather(
                *(client.invoke(address, RemotingCommand(ECHO, body=body), 60_000) for body in bodies)
            )
            assert [answer.body for answer in answers] == bodies
            assert (await client.invoke(address, RemotingCommand(LATER), 60_000)).remark == "later"
            large = bytes(10 << 20)
            assert (await client.invoke(address, RemotingCommand(ECHO, body=large), 60_000)).body == large

    run(scenario)


def test_failed_and_unknown_requests_are_answered(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), calling() as client:
            unknown = await client.invoke(address, RemotingCommand(77), 60_000)
            assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert unknown.remark == " request type 77 not supported"
            failed = await client.invoke(address, RemotingCommand(FAIL), 60_000)
            assert failed.code == ResponseCode.SYSTEM_ERROR
            assert "the custom field <topic> is null" in str(failed.remark)

    run(scenario)


def test_server_sends_request_to_client(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), calling(handler=RequestDispatcher({ECHO: echo})) as client:
            assert (await client.invoke(address, RemotingCommand(ASK_BACK), 60_000)).body == b"who are you"

    run(scenario)


def test_request_without_answer_times_out_and_without_server_fails(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), calling() as client:
            await client.channel(address)  # which may take longer than the 20 ms
            with pytest.raises(RemotingTimeoutError, match=r"no answer within \d+ ms"):
                await client.invoke(address, RemotingCommand(NEVER), 20)
            with pytest.raises(RemotingConnectError, match="the connection was closed"):
                await client.invoke(address, RemotingCommand(CLOSE), 60_000)
            assert (await client.invoke(address, RemotingCommand(ECHO, body=b"x"), 60_000)).body == b"x"
        async with calling() as client:
            with pytest.raises(RemotingConnectError):
                await client.invoke(address, RemotingCommand(ECHO), 60_000)

    run(scenario)


def test_unwritable_request_fails_without_waiting(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "MAX_PENDING_REQUESTS", 1)
    text: Any = "not bytes"

    async def scenario() -> None:
        async with serving() as (_, address), calling() as client:
            with pytest.raises(TypeError):
                await client.invoke(address, RemotingCommand(ECHO, body=text), 60_000)
            assert (await client.invoke(address, RemotingCommand(ECHO, body=b"x"), 60_000)).body == b"x"

    run(scenario)


def test_connection_without_answers_is_replaced(run: Callable[[Scenario], None]) -> None:
    """What lies between the ends may forget a connection and tell neither; a new one goes through."""

    async def scenario() -> None:
        async with serving() as (server, address), calling() as client:
            request = RemotingCommand(ECHO, body=b"x")
            await client.invoke(address, request, 60_000)
            (channel,) = server.channels
            channel.send_bytes = lambda frames: None  # type: ignore[method-assign]
            with pytest.raises(RemotingTimeoutError):
                await client.invoke(address, request, 200)
            assert (await client.invoke(address, request, 60_000)).body == b"x"

    run(scenario)


def test_timeout_keeps_connection_with_other_answers(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (server, address), calling() as client:
            never = asyncio.create_task(client.invoke(address, RemotingCommand(NEVER), 200))
            while not server.channels:
                await asyncio.sleep(0.001)
            await client.invoke(address, RemotingCommand(ECHO), 60_000)
            channels = set(server.channels)
            with pytest.raises(RemotingTimeoutError):
                await never
            await client.invoke(address, RemotingCommand(ECHO), 60_000)
            assert server.channels == channels

    run(scenario)


@contextmanager
def closed_door() -> Iterator[tuple[socket.socket, str]]:
    """A server that accepts nobody, and before which there is no more room to wait."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as door, ExitStack() as crowd:
        for _ in range(3):
            one = crowd.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(door.getsockname())
        yield door, f"127.0.0.1:{door.getsockname()[1]}"


def test_cancelled_caller_leaves_connection_attempt_to_others(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        with closed_door() as (door, address):
            async with calling(connect_timeout_ms=30_000) as client:
                patient = asyncio.ensure_future(client.channel(address, 30_000))
                with pytest.raises(RemotingConnectError, match="no connection within 20 ms"):
                    await client.invoke(address, RemotingCommand(ECHO), 20)
                door.setblocking(False)
                accepted = []
                while not patient.done():
                    with suppress(BlockingIOError):
                        accepted.append(door.accept()[0])
                    await asyncio.sleep(0.001)
                assert not (await patient).is_closed
                for one in accepted:
                    one.close()

    run(scenario)


def test_failed_connection_attempt_is_error_for_all_waiting_callers(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        with closed_door() as (_, address):
            async with calling(connect_timeout_ms=20) as client:
                calls = [client.invoke(address, RemotingCommand(ECHO), 30_000) for _ in range(3)]
                errors = await asyncio.gather(*calls, return_exceptions=True)
                assert {str(error) for error in errors} == {f"{address}: no connection within 20 ms"}
            async with calling(connect_timeout_ms=30_000) as client:
                waiting = asyncio.ensure_future(client.invoke(address, RemotingCommand(ECHO), 30_000))
                await asyncio.sleep(0)
                await client.close()
                with pytest.raises(RemotingConnectError, match="the client was closed"):
                    await waiting

    run(scenario)


def test_one_way_request_leaves_no_pending_entry(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        seen: list[RemotingCommand] = []

        def note(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            seen.append(request)
            return request.response(0)

        server = RemotingServer(RequestDispatcher({ECHO: note}))
        address = f"127.0.0.1:{await server.start()}"
        async with calling() as client:
            await client.invoke_oneway(address, RemotingCommand(ECHO))
            await client.invoke(address, RemotingCommand(ECHO), 60_000)
        assert [request.is_oneway for request in seen] == [True, False]
        await server.close()

    run(scenario)


@pytest.mark.parametrize("tls", [False, True])
def test_requests_sent_before_close_arrive(run: Callable[[Scenario], None], tls: bool) -> None:
    async def scenario() -> None:
        seen: list[int] = []
        server = RemotingServer(RequestDispatcher({ECHO: lambda channel, request: seen.append(len(request.body))}))
        address = f"127.0.0.1:{await server.start()}"
        async with calling(tls=tls_client({"tls.enable": "true"}) if tls else None) as client:
            for _ in range(2):
                await client.invoke_oneway(address, RemotingCommand(ECHO, body=bytes(4 << 20)))
            channel = await client.channel(address)
        assert channel.is_closed
        while server.channels:
            await asyncio.sleep(0.001)
        assert seen == [4 << 20] * 2
        await server.close()

    run(scenario)


def test_close_does_not_wait_for_peer_not_reading(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            for tls in (None, tls_client({"tls.enable": "true"})):
                async with calling(tls=tls) as client:
                    await client.invoke_oneway(address, RemotingCommand(ECHO, body=bytes(15 << 20)))
                    channel = await client.channel(address)
                assert channel.is_closed

    run(scenario)


def test_typed_request_gets_typed_response(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            asked = request.read(GetMaxOffsetRequestHeader)
            return request.response(0, header=GetMaxOffsetResponseHeader(offset=asked.queue_id + 40))

        server = RemotingServer(RequestDispatcher({RequestCode.GET_MAX_OFFSET: answer}))
        address = f"127.0.0.1:{await server.start()}"
        async with calling() as client:
            request = RemotingCommand.request(GetMaxOffsetRequestHeader(topic="T", queue_id=2))
            response = await client.invoke(address, request, 60_000)
        assert response.read(GetMaxOffsetResponseHeader).offset == 42
        await server.close()

    run(scenario)


def test_bad_connection_does_not_affect_others(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (server, address), calling() as client:
            for garbage in (
                b"GET / HTTP/1.1\r\n\r\n",
                b"\xff" * 100,
                b"\x16\x03\x01\x00\x05hello",
                b"\x00\x00\x00\x08{}{}{}{}",
            ):
                reader, writer = await asyncio.open_connection(*split_address(address))
                writer.write(garbage)
                with suppress(ConnectionError):
                    assert (await reader.read())[:1] in (b"", TLS_ALERT)
                writer.close()
            for half in (encode_command(RemotingCommand(ECHO, body=bytes(100)))[:50], b"\x16\x03\x01\x02\x00"):
                _, writer = await asyncio.open_connection(*split_address(address))
                writer.write(half)
                assert (await client.invoke(address, RemotingCommand(ECHO, body=b"x"), 60_000)).body == b"x"
                writer.close()
            while len(server.channels) > 1:
                await asyncio.sleep(0.001)

    run(scenario)


def test_requests_before_invalid_bytes_are_answered(run: Callable[[Scenario], None]) -> None:
    """A read may bring both; what is done must not hang on how the stream was cut."""

    async def scenario() -> None:
        seen: list[bytes] = []
        server = RemotingServer(RequestDispatcher({ECHO: lambda channel, request: seen.append(request.body)}))
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        sent = [b"%d" % number for number in range(5)]
        writer.write(b"".join(encode_command(RemotingCommand(ECHO, body=body)) for body in sent) + b"\xff" * 8)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await server.close()
        assert seen == sent

    run(scenario)


@asynccontextmanager
async def answering_with_garbage() -> AsyncIterator[str]:
    """A server whose first answer on a connection is followed by what is no frame."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        [request] = Connection().receive(await reader.read(65536))
        writer.write(encode_command(request.response(0, body=b"whole")) + b"\xff" * 8)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_answer_before_invalid_bytes_arrives(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with answering_with_garbage() as address, calling() as client:
            for _ in range(2):  # the second time over a new connection
                channel = await client.channel(address)
                assert (await client.invoke(address, RemotingCommand(ECHO), 60_000)).body == b"whole"
                assert channel.is_closed

    run(scenario)


def test_answer_before_invalid_bytes_arrives_at_blocking_client(run: Callable[[Scenario], None]) -> None:
    def ask(address: str) -> None:
        connection = BlockingConnection(address, ClientConfig(address), SystemClock())
        connection.send(RemotingCommand(ECHO))
        assert connection.receive(5000).body == b"whole"
        assert not connection.is_idle
        connection.send(RemotingCommand(ECHO))
        with pytest.raises(RemotingCommandError, match="larger than"):
            connection.receive(5000)
        connection.close()

    async def scenario() -> None:
        async with answering_with_garbage() as address:
            await asyncio.to_thread(ask, address)

    run(scenario)


def test_tls_data_before_invalid_bytes_is_returned() -> None:
    server = TlsSession(self_signed_context(), server_side=True)
    client = TlsSession(known_to_nobody(), server_side=False)
    for _ in range(2):
        server.receive(client.take())
        client.receive(server.take())
    client.send(b"whole")
    assert server.receive(client.take() + b"\xff" * 100) == b"whole"
    assert isinstance(server.error, ssl.SSLError)


BEHIND = (b"\x17\x03\x03\x40\x00" + bytes(1 << 14)) * 10


class Tls:
    """One end of TLS that is moved by hand, so that it can say goodbye and go on."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.is_over = False

    def say(self) -> bytes:
        return self._outgoing.read()

    def hear(self, data: bytes) -> bytes:
        """What is said; the first time that something is, the handshake is done."""
        self._incoming.write(data)
        said = b""
        with suppress(ssl.SSLWantReadError):
            self._end.do_handshake()
            with suppress(ssl.SSLZeroReturnError):  # so it is told who has said goodbye himself
                while part := self._end.read(1 << 20):
                    said += part
            self.is_over = True
        return said

    def tell(self, said: bytes) -> None:
        self._end.write(said)

    def send_close_notify(self, said: bytes) -> bytes:
        """The last words, and the goodbye."""
        self.tell(said)
        with suppress(ssl.SSLWantReadError):
            self._end.unwrap()
        return self.say()


def test_close_notify_of_client_is_answered_and_connection_closed(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (server, address):
            reader, writer = await asyncio.open_connection(*split_address(address))
            client, said = Tls(known_to_nobody(), server_side=False), b""
            client.hear(b"")
            writer.write(client.say())
            client.hear(await reader.read(65536))
            writer.write(client.say() + client.send_close_notify(encode_command(RemotingCommand(ECHO, body=b"hello"))))
            with suppress(ConnectionError):
                while data := await reader.read(65536):
                    said += client.hear(data)
            assert said.endswith(b"hello")
            assert server.channels == set()
            writer.close()

    run(scenario)


def test_client_reads_answers_and_closes_after_close_notify_of_server(run: Callable[[Scenario], None]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = Tls(self_signed_context(), server_side=True)
        while not (asked := server.hear(await reader.read(65536))):
            writer.write(server.say())
        [request] = Connection().receive(asked)
        writer.write(server.send_close_notify(encode_command(request.response(0, body=b"last words"))) + BEHIND)
        await reader.read()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with calling(tls=known_to_nobody()) as client:
                channel = await client.channel(address)
                assert (await client.invoke(address, RemotingCommand(ECHO), 60_000)).body == b"last words"
                while not channel.is_closed:
                    await asyncio.sleep(0.001)

    run(scenario)


def test_bytes_after_close_notify_are_ignored() -> None:
    server, client = TlsSession(self_signed_context(), server_side=True), Tls(known_to_nobody(), server_side=False)
    for _ in range(2):
        client.hear(server.take())
        server.receive(client.say())
    last = client.send_close_notify(b"last words")
    assert server.receive(last + BEHIND) == b"last words"
    assert server.is_over
    assert server.receive(BEHIND) == b""
    assert server.buffered_bytes == len(BEHIND)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_server_close_over_tls_sends_close_notify(run: Callable[[Scenario], None], version: ssl.TLSVersion) -> None:
    """Or the other end cannot tell the end from a connection that somebody cut."""
    context = known_to_nobody()
    context.minimum_version = context.maximum_version = version

    def connected(address: str) -> ssl.SSLSocket:
        plain = socket.create_connection(split_address(address), 5)
        return context.wrap_socket(plain, suppress_ragged_eofs=False)

    def is_answered(address: str) -> bool:
        with connected(address) as client, client.unwrap() as rest:
            return rest.recv(1) == b""

    def is_told(address: str) -> bool:
        with connected(address) as client:
            client.sendall(encode_command(RemotingCommand(CLOSE)))
            return client.recv(1) == b""

    async def scenario() -> None:
        async with serving() as (_, address):
            assert await asyncio.to_thread(is_answered, address)
            assert await asyncio.to_thread(is_told, address)

    run(scenario)


def test_client_close_over_tls_sends_close_notify(run: Callable[[Scenario], None]) -> None:
    server, ended = Tls(self_signed_context(), server_side=True), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            for request in Connection().receive(server.hear(data)):
                server.tell(encode_command(request.response(0)))
            writer.write(server.say())
        writer.close()
        ended.set()

    async def scenario() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1") as listening:
            async with calling(tls=known_to_nobody()) as client:
                address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
                await client.invoke(address, RemotingCommand(ECHO), 60_000)
            await ended.wait()
        assert server.is_over

    run(scenario)


def known_to_nobody() -> ssl.SSLContext:
    """A client's context that asks for no proof of who answers."""
    context = tls_client({"tls.enable": "true"})
    assert context is not None
    return context


async def ended(one: socket.socket) -> bool:
    """Whether the other end closes the connection without a word."""
    try:
        return await asyncio.get_running_loop().sock_recv(one, 1) == b""
    except ConnectionError:
        return True


def test_too_many_connections_and_idle_ones_are_closed(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving(limits=ServerLimits(max_connections=2), idle_seconds=0.05) as (server, address):
            sockets = [socket.create_connection(split_address(address)) for _ in range(3)]
            for one in sockets:
                one.setblocking(False)
                assert await ended(one)
                one.close()
            assert server.channels == set()

    run(scenario)


def test_incomplete_frames_share_memory_limit(run: Callable[[Scenario], None]) -> None:
    """Whoever holds much for long goes first; a quick sender of as much stays."""

    async def scenario() -> None:
        async with serving(limits=ServerLimits(max_partial_bytes=3 << 19)) as (server, address):
            frame = encode_command(RemotingCommand(ECHO, body=bytes(1 << 20)))
            trickling, quick = [await asyncio.open_connection(*split_address(address)) for _ in range(2)]
            trickling[1].write(frame[: 900 << 10])
            while sum(one.buffered_bytes for one in server.channels) < 900 << 10:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.1)
            quick[1].write(frame[: 800 << 10])
            assert await trickling[0].read() == b""
            quick[1].write(frame[800 << 10 :])
            assert (await quick[0].readexactly(8))[4] == 0
            for one in (trickling, quick):
                one[1].close()

    run(scenario)


def test_peer_not_reading_is_paused(run: Callable[[Scenario], None]) -> None:
    """A client that only asks: the server stops reading it, so that what it owes stays bounded."""

    async def scenario() -> None:
        async with serving() as (server, address):
            _, writer = await asyncio.open_connection(*split_address(address))
            request = encode_command(RemotingCommand(ECHO, body=bytes(256 << 10)))
            for _ in range(400):
                writer.write(request)
            most = 0
            for _ in range(300):
                most = max([most, *(one.unread_bytes for one in server.channels)])
                await asyncio.sleep(0.001)
            assert 0 < most < 8 << 20
            writer.transport.abort()

    run(scenario)


def test_send_to_server_not_reading_ends_at_timeout(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_SILENT_SECONDS", 60)  # a busy machine makes 50 ms longer than the 100 of this

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # or the kernel takes it all, at times
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            async with calling(connect_timeout_ms=500) as client:
                channel = await client.channel(address)
                large = RemotingCommand(ECHO, body=bytes(15 << 20))
                for command in (large, RemotingCommand(ECHO)):
                    with pytest.raises(RemotingTimeoutError, match=r"no answer within \d+ ms"):
                        await client.invoke(address, command, 50)
                with pytest.raises(RemotingTimeoutError, match="no answer within 500 ms"):
                    await client.invoke_oneway(address, RemotingCommand(ECHO))
                channel.abort()

    run(scenario)


def test_client_with_too_many_unread_bytes_is_disconnected(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "MAX_UNREAD_BYTES", 4 << 20)

    async def scenario() -> None:
        def flood(channel: Channel, request: RemotingCommand) -> None:
            for _ in range(100):
                channel.send(RemotingCommand(ECHO, body=bytes(1 << 20), flag=2))

        server = RemotingServer(RequestDispatcher({ECHO: flood}))
        address = f"127.0.0.1:{await server.start()}"
        _, writer = await asyncio.open_connection(*split_address(address))
        writer.write(encode_command(RemotingCommand(ECHO)))
        while not server.channels:
            await asyncio.sleep(0.001)
        while server.channels:
            await asyncio.sleep(0.001)
        writer.transport.abort()
        await server.close()

    run(scenario)


def test_unfinished_handshake_has_memory_limit(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent one way is given up by nobody's time-out."""
    monkeypatch.setattr(channel_module, "MAX_UNREAD_BYTES", 1 << 20)

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            async with calling(tls=known_to_nobody()) as client:
                channel = await client.channel(address)
                for _ in range(5):
                    channel.invoke_oneway(RemotingCommand(ECHO, body=bytes(400 << 10)))
                    await asyncio.sleep(0.01)
                assert channel.is_closed

    run(scenario)


@asynccontextmanager
async def far_away(address: str) -> AsyncIterator[str]:
    """Another address of a server, which takes its time for the first answer, as a handshake does there."""
    ends: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float) -> None:
        ends.append(writer)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await asyncio.sleep(wait_s)
                wait_s = 0
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*split_address(address))
        await asyncio.gather(carry(reader, back, 0), carry(there, writer, 0.05))

    relay = await asyncio.start_server(accept, "127.0.0.1")
    try:
        yield f"127.0.0.1:{relay.sockets[0].getsockname()[1]}"
    finally:
        relay.close()
        for one in ends:
            one.transport.abort()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("apart_s", [0, 0.002])
def test_client_waiting_for_drain_is_not_disconnected(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch, tls: bool, apart_s: float
) -> None:
    """Neither while a TLS handshake lasts, nor when all who waited are let go on at once."""
    monkeypatch.setattr(channel_module, "WRITE_HIGH_WATER_BYTES", 1 << 18)
    monkeypatch.setattr(channel_module, "MAX_UNREAD_BYTES", 1 << 21)

    async def scenario() -> None:
        server = RemotingServer(RequestDispatcher({ECHO: lambda channel, request: request.response(0)}))
        served = f"127.0.0.1:{await server.start()}"
        async with far_away(served) as address, calling(tls=known_to_nobody() if tls else None) as client:

            async def ask(number: int) -> int:
                await asyncio.sleep(number * apart_s)
                return (await client.invoke(address, RemotingCommand(ECHO, body=bytes(1 << 20)), 20_000)).code

            assert await asyncio.gather(*map(ask, range(20))) == [0] * 20
        await server.close()

    run(scenario)


def test_answers_of_one_loop_turn_leave_in_one_write(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address):
            reader, writer = await asyncio.open_connection(*split_address(address))
            commands = [RemotingCommand(ECHO, opaque=number, body=b"x") for number in range(50)]
            writer.write(b"".join(map(encode_command, commands)))
            connection, received = Connection(), list[RemotingCommand]()
            while len(received) < 50:
                received += connection.receive(await reader.read(65536))
            assert [one.opaque for one in received] == list(range(50))
            writer.close()

    run(scenario)


@pytest.mark.parametrize("mode", list(TlsMode))
def test_server_accepts_tls_and_plain_text_by_mode(run: Callable[[Scenario], None], mode: TlsMode) -> None:
    server_tls = tls_server(CERTIFICATE | {"tls.server.mode": mode.value})
    context = tls_client(
        {"tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": str(TLS / "server.pem")}
    )

    async def scenario() -> None:
        async with serving(tls=server_tls) as (_, address):
            for tls, welcome in ((None, mode is not TlsMode.ENFORCING), (context, mode is not TlsMode.DISABLED)):
                async with calling(tls=tls) as client:
                    call = client.invoke(address, RemotingCommand(ECHO, body=bytes(300_000)), 60_000)
                    if welcome:
                        assert len((await call).body) == 300_000
                    else:
                        with pytest.raises(RemotingConnectError):
                            await call

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "answered"),
    [
        (None, True),
        ({"tls.server.mode": "permissive", "tls.protocols": "TLSv1.3"}, True),
        ({"tls.server.mode": "enforcing", "tls.test.mode.enable": "true"}, True),
        ({"tls.test.mode.enable": "false"}, False),
        ({"tls.server.mode": "disabled"}, False),
    ],
)
def test_server_without_certificate_creates_self_signed_certificate(
    run: Callable[[Scenario], None], settings: dict[str, str] | None, answered: bool
) -> None:
    async def scenario() -> None:
        server_tls = None if settings is None else tls_server(settings)
        async with serving(tls=server_tls) as (_, address), calling(tls=tls_client({"tls.enable": "true"})) as client:
            call = client.invoke(address, RemotingCommand(ECHO, body=b"hello"), 60_000)
            if answered:
                assert (await call).body == b"hello"
            else:
                with pytest.raises(RemotingConnectError):
                    await call

    run(scenario)


def test_tls_without_certificate_and_extra_closes_connection_and_names_extra(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)  # as if it were not installed
    with pytest.raises(RemotingCommandError, match=r"tls\.server\.certPath.*pip install 'gantrymq\[tls\]'"):
        TlsServer().answering()
    with pytest.raises(ConfigError, match="extra tls"):
        tls_server({"tls.server.mode": "enforcing", "tls.test.mode.enable": "true"})

    async def scenario() -> None:
        async with (
            serving() as (_, address),
            calling() as plain,
            calling(tls=tls_client({"tls.enable": "true"})) as tls,
        ):
            with pytest.raises(RemotingConnectError):
                await tls.invoke(address, RemotingCommand(ECHO), 60_000)
            assert (await plain.invoke(address, RemotingCommand(ECHO, body=b"hello"), 60_000)).body == b"hello"

    run(scenario)


def test_created_certificate_is_self_signed(rng: random.Random) -> None:
    for _ in range(8):
        server = self_signed_context(name="n" * rng.randrange(1, 65))
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        certificate = _handshake(server, client)
        client.verify_mode = ssl.CERT_REQUIRED
        client.verify_flags |= CHECK_SELF_SIGNATURE
        client.load_verify_locations(cadata=certificate)
        assert _handshake(server, client) == certificate
        with pytest.raises(ssl.SSLCertVerificationError):
            _handshake(self_signed_context(), client)


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """The certificate that the server showed the client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asked = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server)
    for one in (asking, asked, asking, asked):
        with suppress(ssl.SSLWantReadError):
            one.do_handshake()
    return asking.getpeercert(binary_form=True) or b""


def renew(folder: Path) -> None:
    """Put a new certificate and its key where ``folder`` has the old ones, as those do who renew them."""
    for kind in ("pem", "key"):
        shutil.copy(TLS / f"renewed.{kind}", folder / f"new.{kind}")
        (folder / f"new.{kind}").replace(folder / f"server.{kind}")


@pytest.fixture
def replaceable(tmp_path: Path) -> dict[str, str]:
    """Settings whose certificate, key and trusted file are the test's own."""
    for name in ("server.pem", "server.key", "trusted.pem"):
        shutil.copy(TLS / name.replace("trusted", "server"), tmp_path / name)
    names = {"certPath": "server.pem", "keyPath": "server.key", "trustCertPath": "trusted.pem"}
    return {f"tls.server.{key}": str(tmp_path / name) for key, name in names.items()}


def shown(server: TlsServer) -> bytes:
    """The certificate that a new connection is shown."""
    context = server.answering()
    assert context is not None
    return _handshake(context, known_to_nobody())


def test_replaced_certificate_is_reloaded(replaceable: dict[str, str], tmp_path: Path) -> None:
    server = tls_server(replaceable)

    def reports() -> list[str]:
        """What three looks at the files say."""
        with capture_logs() as lines:
            for _ in range(3):
                server.reload()
        return [line["event"] for line in lines]

    old = shown(server)
    assert (reports(), shown(server)) == ([], old)
    key = (tmp_path / "server.key").read_bytes()
    (tmp_path / "server.key").write_bytes(b"half a k")
    assert (reports(), reports(), shown(server)) == (["TLS certificate not reloaded"], [], old)
    (tmp_path / "server.key").write_bytes(key)
    assert (reports(), shown(server)) == (["TLS certificate reloaded"], old)
    renew(tmp_path)
    assert reports() == ["TLS certificate reloaded"]
    assert b"renewed" in shown(server)
    (tmp_path / "server.pem").unlink()
    assert reports() == ["TLS certificate not reloaded"]
    assert b"renewed" in shown(server)


def test_reloaded_tls_files_include_trusted_certificates(replaceable: dict[str, str], tmp_path: Path) -> None:
    server = tls_server(replaceable | {"tls.server.authClient": "true"})
    shutil.copy(TLS / "renewed.pem", tmp_path / "trusted.pem")
    server.reload()
    context = server.answering()
    assert context is not None
    assert b"renewed" in context.get_ca_certs(binary_form=True)[0]


def test_running_server_uses_replaced_certificate(
    run: Callable[[Scenario], None], replaceable: dict[str, str], tmp_path: Path
) -> None:
    trusted = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(TLS / "renewed.pem")}
    context = tls_client({"tls.enable": "true"} | trusted)

    async def scenario() -> None:
        server = tls_server(replaceable)
        async with serving(tls=server, idle_seconds=0.05) as (_, address), calling(tls=context) as client:
            with pytest.raises(RemotingConnectError):
                await client.invoke(address, RemotingCommand(ECHO), 60_000)
            renew(tmp_path)
            answer = None
            while answer is None:
                with suppress(RemotingConnectError):
                    answer = await client.invoke(address, RemotingCommand(ECHO, body=b"hello"), 60_000)
            assert answer.body == b"hello"

    run(scenario)


def test_server_with_untrusted_certificate_is_refused(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        stranger = tls_client({"tls.enable": "true", "tls.client.authServer": "true"})
        async with serving(tls=tls_server(CERTIFICATE)) as (_, address), calling(tls=stranger) as client:
            with pytest.raises(RemotingConnectError):
                await client.invoke(address, RemotingCommand(ECHO), 60_000)

    run(scenario)


KNOWN = {"tls.server.trustCertPath": str(TLS / "server.pem")}


@pytest.mark.parametrize(
    ("asked", "nobody", "named"),
    [
        ({}, True, True),
        (KNOWN | {"tls.server.need.client.auth": "optional"}, True, True),
        ({"tls.server.need.client.auth": "optional"}, True, False),
        (KNOWN | {"tls.server.need.client.auth": "REQUIRE"}, False, True),
        ({"tls.server.need.client.auth": "require"}, False, False),
        (KNOWN | {"tls.server.authClient": "true"}, False, True),
    ],
)
def test_client_certificate_is_required_as_configured(
    run: Callable[[Scenario], None], asked: dict[str, str], nobody: bool, named: bool
) -> None:
    own = {"tls.client.certPath": str(TLS / "server.pem"), "tls.client.keyPath": str(TLS / "server.key")}

    async def scenario() -> None:
        async with serving(tls=tls_server(CERTIFICATE | asked)) as (_, address):
            for shown, welcome in (({}, nobody), (own, named)):
                async with calling(tls=tls_client({"tls.enable": "true"} | shown)) as client:
                    call = client.invoke(address, RemotingCommand(ECHO, body=b"hello"), 60_000)
                    if welcome:
                        assert (await call).body == b"hello"
                    else:
                        with pytest.raises(RemotingConnectError):
                            await call

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"tls.server.mode": "maybe"}, "tls.server.mode"),
        (CERTIFICATE | {"tls.server.need.client.auth": "required"}, "tls.server.need.client.auth"),
        ({"tls.server.mode": "enforcing"}, "tls.server.certPath"),
        ({"tls.server.certPath": "nowhere.pem"}, "tls.server.certPath"),
        (CERTIFICATE | {"tls.protocols": "SSLv3"}, "tls.protocols"),
        (CERTIFICATE | {"tls.ciphers": "none-such"}, "tls.ciphers"),
        (CERTIFICATE | {"tls.server.authClient": "true", "tls.server.trustCertPath": "x"}, "tls.server.trustCertPath"),
    ],
)
def test_bad_tls_settings_are_named(settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tls_server(settings)
    assert caught.value.key == key


def test_tls_is_off_by_default() -> None:
    assert tls_client({}) is None


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        "host:",
        "host:x",
        "host:99999",
        ":9876",
        "a..b:9876",
        f"{'x' * 64}:9876",
        "a\udc80:9876",
        f"host:{'9' * 5000}",
    ],
)
def test_invalid_address_is_named_in_error(address: str) -> None:
    with pytest.raises(RemotingError, match="no address"):
        split_address(address)


def test_address_is_split_into_host_and_port() -> None:
    assert split_address("127.0.0.1:9876") == ("127.0.0.1", 9876)
    assert split_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_listen_on_unknown_host_fails(run: Callable[[Scenario], None], host: str) -> None:
    async def scenario() -> None:
        with pytest.raises(RemotingError, match="cannot listen on"):
            await RemotingServer(RequestDispatcher()).start(host)

    run(scenario)


def test_listen_on_used_port_fails(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address):
            with pytest.raises(RemotingError, match="cannot listen on"):
                await RemotingServer(RequestDispatcher()).start("127.0.0.1", split_address(address)[1])

    run(scenario)


def test_connection_during_close_of_server_is_closed(run: Callable[[Scenario], None]) -> None:
    """Accepted, but nobody's: such a connection would stay open without an answer for as long as the process lives."""

    async def scenario() -> None:
        for turns in range(6):
            server = RemotingServer(RequestDispatcher())
            port = await server.start()
            coming = [asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port)) for _ in range(20)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            for came in await asyncio.gather(*coming, return_exceptions=True):
                if isinstance(came, tuple):
                    with suppress(ConnectionError):
                        assert await asyncio.wait_for(came[0].read(), 10) == b""
                    came[1].close()
                    with suppress(ConnectionError):
                        await came[1].wait_closed()
            assert not server.channels

    run(scenario)
