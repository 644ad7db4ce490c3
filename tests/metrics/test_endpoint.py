"""The endpoint for scrapes, at strangers too."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gantrymq.errors import RemotingError
from gantrymq.metrics import endpoint as module
from gantrymq.metrics.endpoint import MAX_CONNECTIONS, MetricsEndpoint
from gantrymq.metrics.instruments import Family, Kind, Metric, Point, gauge

AGE = Metric("age", Kind.GAUGE, "Ages.")


class Collected:
    """Counts the snapshots; they wait for ``go``."""

    def __init__(self) -> None:
        self.count = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> Sequence[Family]:
        self.count += 1
        await self.go.wait()
        return [gauge(AGE, [Point((), self.count)], 1)]


@asynccontextmanager
async def serving(collect: module.Collect) -> AsyncIterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint(collect, {})
    await endpoint.bind("127.0.0.1", 0)
    await endpoint.serve()
    try:
        yield endpoint
    finally:
        await endpoint.close()


async def ask(endpoint: MetricsEndpoint, request: bytes) -> bytes:
    """What the endpoint answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
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
    async with serving(Collected()) as endpoint:
        head, _, body = (await ask(endpoint, GET)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert b"\nage 1\n" in body
        packed = await ask(
            endpoint, b"GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\nAccept: application/openmetrics-text\r\n\r\n"
        )
        head, _, body = packed.partition(b"\r\n\r\n")
        assert b"application/openmetrics-text" in head
        assert gzip.decompress(body).endswith(b"# EOF\n")
        assert (await ask(endpoint, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        assert b"Exporter is healthy." in await ask(endpoint, b"GET /-/healthy HTTP/1.1\r\n\r\n")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"\x16\x03\x01\0\0\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"x" * 20_000, b""),  # too long: no answer
    ],
)
async def test_other_requests_are_refused(request_: bytes, status: bytes) -> None:
    async with serving(Collected()) as endpoint:
        answer = await ask(endpoint, request_)
        assert answer[9:12] == status
        assert b"age" in await ask(endpoint, GET)


@pytest.mark.asyncio
async def test_a_scraper_that_hangs_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REQUEST_S", 0.02)
    async with serving(Collected()) as endpoint:
        assert await ask(endpoint, b"GET /metrics HTTP/1.1\r\n") == b""


@pytest.mark.asyncio
async def test_silent_connections_give_way() -> None:
    async with serving(Collected()) as endpoint:
        silent = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(MAX_CONNECTIONS)]
        assert b"age" in await ask(endpoint, GET)
        for _, writer in silent:
            writer.close()


@pytest.mark.asyncio
async def test_scrapes_at_the_same_time_share_a_snapshot() -> None:
    collected = Collected()
    collected.go.clear()
    async with serving(collected) as endpoint:
        both = [asyncio.ensure_future(ask(endpoint, GET)) for _ in range(2)]
        while not collected.count:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, collected.go.set)
        assert all(b"\nage 1\n" in answer for answer in await asyncio.gather(*both))
        assert b"\nage 2\n" in await ask(endpoint, GET)


@pytest.mark.asyncio
async def test_an_error_is_answered_and_the_next_scrape_succeeds() -> None:
    calls = Collected()

    async def collect() -> Sequence[Family]:
        if not calls.count:
            await calls()
            raise RuntimeError("a table is broken")
        return await calls()

    async with serving(collect) as endpoint:
        assert (await ask(endpoint, GET))[9:12] == b"500"
        assert (await ask(endpoint, GET))[9:12] == b"200"


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_named() -> None:
    async with serving(Collected()) as endpoint:
        with pytest.raises(RemotingError, match=rf"cannot listen on 127.0.0.1:{endpoint.port} for metrics: .*in use"):
            await MetricsEndpoint(Collected(), {}).bind("127.0.0.1", endpoint.port)
