"""A small HTTP server for scrapes: ``/metrics`` in Prometheus' text formats, and ``/-/healthy``.

It runs on the event loop of the server that it shows, because it needs GET without a body and nothing else. The text is
encoded and compressed on a thread. Scrapes that come at the same time share one snapshot, so a second scraper costs
little.

Limits: a request has at most ``_REQUEST_BYTES`` and must arrive within ``_REQUEST_S``; a scraper must read its answer
within ``_ANSWER_S``; at most ``MAX_CONNECTIONS`` are open: a further one replaces the oldest one that has sent no
request, or is closed. Each connection has one request.

Thread rule: the event loop's thread.

Source: PrometheusHttpServer; HTTPServer of Prometheus' client_java.
"""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gantrymq.errors import RemotingError
from gantrymq.logs import get_logger
from gantrymq.metrics.instruments import Family
from gantrymq.metrics.prometheus_text import OPEN_METRICS_TYPE, TEXT_TYPE, encode_text

MAX_CONNECTIONS = 16
_REQUEST_BYTES = 8192
_REQUEST_S = 10.0
_ANSWER_S = 30.0
_GZIP_LEVEL = 1
_HEALTHY = b"Exporter is healthy.\n"
_NOT_FOUND = b"The metrics are at /metrics\n"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}

log = get_logger("gantrymq.metrics")

Collect = Callable[[], Awaitable[Sequence[Family]]]


class _WrongRequest(Exception):
    """Raised for a request that is answered with a status other than 200."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        super().__init__(status)
        self.status, self.body = status, body


class MetricsEndpoint:
    """Serves what ``collect`` returns. ``common`` are the labels that every series has.

    ``port`` 0 takes a free port; :attr:`port` is known after :meth:`bind`.
    """

    def __init__(self, collect: Collect, common: Mapping[str, str]) -> None:
        self._collect, self._common = collect, common
        self._snapshot: asyncio.Task[Sequence[Family]] | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}  # whose request has not arrived, oldest first
        self._server: asyncio.Server | None = None
        self.host, self.port = "", 0

    async def bind(self, host: str, port: int) -> None:
        """Take the port. Connections are accepted after :meth:`serve`. Raises RemotingError if the port is taken."""
        try:
            self._server = await asyncio.start_server(
                self._connected, host, port, limit=_REQUEST_BYTES, start_serving=False
            )
        except (OSError, UnicodeError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise RemotingError(f"cannot listen on {host}:{port} for metrics: {reason}") from error
        self.host, self.port = host, self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        """Begin to answer scrapes."""
        assert self._server is not None, "bind comes first"
        await self._server.start_serving()

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        if self._snapshot is not None:
            self._snapshot.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS and not self._make_room():
            writer.transport.abort()
            return
        self._open.add(writer)
        self._silent[writer] = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.pop(writer, None)
            answer = await self._answer(head)
            writer.write(answer)
            async with asyncio.timeout(_ANSWER_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # a scraper that hangs, has left, or sends something else
        finally:
            self._forget(writer)

    def _make_room(self) -> bool:
        """Close the oldest connection whose request has not arrived. Returns False if there is none."""
        for writer in self._silent:
            writer.transport.abort()
            self._forget(writer)
            return True
        return False

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        self._silent.pop(writer, None)

    async def _answer(self, head: bytes) -> bytes:
        is_head = False
        try:
            method, path, headers = _parse(head)
            is_head = method == "HEAD"
            body, fields = await self._body(path, headers)
            status = 200
        except _WrongRequest as wrong:
            status, body, fields = wrong.status, wrong.body, {}
        except Exception:  # whatever the error is, the scraper gets an answer, and the next scrape may succeed
            log.exception("metrics could not be collected")
            status, body, fields = 500, b"", {}
        fields = {"Content-Type": "text/plain; charset=utf-8"} | fields
        fields |= {"Content-Length": str(len(body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if is_head else body)

    async def _body(self, path: str, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
        if path == "/-/healthy":
            return _HEALTHY, {}
        if path not in ("/", "/metrics"):
            raise _WrongRequest(404, _NOT_FOUND)
        is_open_metrics = "application/openmetrics-text" in headers.get("accept", "")
        is_packed = "gzip" in headers.get("accept-encoding", "")
        families = await self._families()

        def encode() -> bytes:
            text = encode_text(families, self._common, is_open_metrics=is_open_metrics)
            return gzip.compress(text, _GZIP_LEVEL) if is_packed else text

        body = await asyncio.get_running_loop().run_in_executor(None, encode)
        kind = OPEN_METRICS_TYPE if is_open_metrics else TEXT_TYPE
        return body, {"Content-Type": kind} | ({"Content-Encoding": "gzip"} if is_packed else {})

    async def _families(self) -> Sequence[Family]:
        """A snapshot. Callers that come while one is made share it."""
        if self._snapshot is None:
            self._snapshot = asyncio.ensure_future(self._collect())
            self._snapshot.add_done_callback(self._forget_snapshot)
        return await asyncio.shield(self._snapshot)

    def _forget_snapshot(self, _: asyncio.Task[Sequence[Family]]) -> None:
        self._snapshot = None


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    """The method, the path without its query, and the headers in lower case. Raises _WrongRequest."""
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _WrongRequest(400)
    method, target, _ = parts
    if method not in ("GET", "HEAD"):
        raise _WrongRequest(405)
    fields = (line.partition(":") for line in rest if line)
    return method, target.partition("?")[0], {name.strip().lower(): value.strip().lower() for name, _, value in fields}
