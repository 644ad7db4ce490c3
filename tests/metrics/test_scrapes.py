"""The server for scrapes, at strangers too."""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from socketserver import TCPServer

import pytest
from structlog.testing import capture_logs

from gantrymq.errors import RemotingError
from gantrymq.metrics import prometheus as module
from gantrymq.metrics.instruments import Counter, Family, Kind, Metric, gauge, value_now
from gantrymq.metrics.prometheus import MAX_CONNECTIONS, Collect, ScrapeServer

AGE = Metric("age", Kind.GAUGE, "Ages.")
SENDS = Metric("sends_total", Kind.COUNTER, "Sends.")


class Collected:
    """Counts the snapshots; they wait for ``go``."""

    def __init__(self) -> None:
        self.count = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> Sequence[Family]:
        self.count += 1
        await self.go.wait()
        sends = Counter(SENDS, 2)
        sends.series().value += self.count
        return [value_now(AGE, self.count), sends.family()]


@asynccontextmanager
async def serving(collect: Collect) -> AsyncIterator[ScrapeServer]:
    server = ScrapeServer(collect, {})
    server.bind("127.0.0.1", 0)
    server.serve()
    try:
        yield server
    finally:
        server.close()


async def ask(server: ScrapeServer, request: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.asyncio
async def test_scrapes_are_answered() -> None:
    async with serving(Collected()) as server:
        head, _, body = (await ask(server, GET)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert b"\nage 1.0\n" in body
        packed = await ask(
            server, b"GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\nAccept: application/openmetrics-text\r\n\r\n"
        )
        head, _, body = packed.partition(b"\r\n\r\n")
        assert b"application/openmetrics-text" in head
        assert gzip.decompress(body).endswith(b"# EOF\n")
        assert b"Exporter is healthy." in await ask(server, b"GET /-/healthy HTTP/1.1\r\n\r\n")
        some = await ask(server, b"GET /metrics?name[]=sends_total HTTP/1.1\r\n\r\n")
        assert b"\nsends_total 3.0\n" in some
        assert b"age" not in some


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"GET /" + b"x" * 70_000, b"414"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"\x16\x03\x01\0\0\r\n\r\n", b""),  # TLS: an answer without a head, as to HTTP 0.9
        (b"GET /metrics HTTP/one\r\n\r\n", b""),
        (b"GET /other", b""),
    ],
)
async def test_other_requests_are_refused(
    request_: bytes, status: bytes, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.05)
    with capture_logs() as lines:
        async with serving(Collected()) as server:
            answer = await ask(server, request_)
            assert (answer[9:12] if answer.startswith(b"HTTP/1.0 ") else b"") == status
            assert b"age" in await ask(server, GET)
    assert lines == []
    assert capfd.readouterr().err == ""


@pytest.mark.asyncio
async def test_connection_above_limit_closes_oldest() -> None:
    async with serving(Collected()) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_CONNECTIONS)]
        assert b"age" in await ask(server, GET)
        assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


@pytest.mark.asyncio
async def test_exhausted_file_descriptors_do_not_make_event_loop_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EXHAUSTED_PAUSE_S", 0.1)
    loop, accept, failed = asyncio.get_running_loop(), TCPServer.get_request, 0
    free = asyncio.Event()

    def accept_if_free(server: TCPServer) -> object:
        nonlocal failed
        if free.is_set():
            return accept(server)
        failed += 1
        loop.call_later(0.05, free.set)  # before the pause ends
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(TCPServer, "get_request", accept_if_free)
    async with serving(Collected()) as server:
        assert b"age" in await ask(server, GET)
    assert failed == 1


@pytest.mark.asyncio
async def test_connection_of_scraper_not_reading_is_closed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.1)
    topics = Metric("t", Kind.GAUGE, "Topics.", ("topic",))

    async def collect() -> Sequence[Family]:
        return [gauge(topics, [topics.point(1, topic=f"{number}" * 5_000) for number in range(1_000)], 1_000)]

    async with serving(collect) as server:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", server.port))
            slow.send(GET)
            assert server._server is not None
            while not server._server._open:
                await asyncio.sleep(0.01)
            while server._server._open:
                await asyncio.sleep(0.01)
    assert capfd.readouterr().err == ""


@pytest.mark.asyncio
async def test_simultaneous_scrapes_share_snapshot() -> None:
    collected = Collected()
    collected.go.clear()
    async with serving(collected) as server:
        both = [asyncio.ensure_future(ask(server, GET)) for _ in range(2)]
        while not collected.count:
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.05, collected.go.set)
        assert all(b"\nage 1.0\n" in answer for answer in await asyncio.gather(*both))
        assert b"\nage 2.0\n" in await ask(server, GET)


@pytest.mark.asyncio
async def test_error_in_scrape_is_answered_and_next_scrape_succeeds() -> None:
    calls = Collected()

    async def collect() -> Sequence[Family]:
        if not calls.count:
            await calls()
            raise RuntimeError("a table is broken")
        return await calls()

    with capture_logs() as lines:
        async with serving(collect) as server:
            assert (await ask(server, GET))[9:12] == b"500"
            assert (await ask(server, GET))[9:12] == b"200"
    assert [line["event"] for line in lines] == ["metrics could not be collected"]


@pytest.mark.asyncio
async def test_scrape_during_close_ends_without_log_line() -> None:
    collected = Collected()
    collected.go.clear()
    with capture_logs() as lines:
        async with serving(collected) as server:
            answer = asyncio.ensure_future(ask(server, GET))
            while not collected.count:
                await asyncio.sleep(0.001)
        assert b"200 OK" not in await answer
    assert lines == []


@pytest.mark.asyncio
async def test_bind_error_names_address_and_reason() -> None:
    async with serving(Collected()) as server:
        with pytest.raises(RemotingError, match=rf"cannot listen on 127.0.0.1:{server.port} for metrics: .*in use"):
            ScrapeServer(Collected(), {}).bind("127.0.0.1", server.port)
    with pytest.raises(RemotingError, match=r"cannot listen on nowhere.invalid:0 for metrics: .*not known"):
        ScrapeServer(Collected(), {}).bind("nowhere.invalid", 0)
