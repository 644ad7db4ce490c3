"""Scrapes: a snapshot as a collector of prometheus-client, and the HTTP server for it.

prometheus-client writes the text (0.0.4 or OpenMetrics, as the scraper accepts), packs it, and filters by ``?name[]=``.
The names and labels are those of RocketMQ's exporter: it adds the label ``otel_scope_name`` to every series and the
metric ``target_info``, and leaves out a metric without series.

The event loop accepts a connection, and a thread answers it. Snapshots are taken on the event loop; scrapes that come
at the same time share one. Samples are made while the text is written, and the thread sleeps after some of them:
otherwise the event loop would wait for the interpreter's lock until the end of the text.

Limits: ``MAX_CONNECTIONS`` are open, and a further one ends the oldest; a scraper that neither sends nor reads for
``_TIMEOUT_S`` is closed. Each connection has one request.

Thread rule: the event loop's thread, except for the methods that say so.

Source: PrometheusHttpServer and Otel2PrometheusConverter of OpenTelemetry; HTTPServer of Prometheus' client_java.
"""

from __future__ import annotations

import asyncio
import errno
import io
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric as PrometheusFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gantrymq.errors import RemotingError, system_reason
from gantrymq.logs import get_logger
from gantrymq.metrics.instruments import OVERFLOW_LABEL, Family, HistogramValue, Kind, LabelValues, Metric, encodable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MAX_CONNECTIONS = 16
SCOPE_LABEL = "otel_scope_name"
_TIMEOUT_S = 30.0
_SAMPLES_A_TURN = 100  # about a millisecond of work
_PAUSE_S = 0.0005
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_EXHAUSTED_PAUSE_S = 1.0
_NOT_IN_A_LABEL = re.compile("^[0-9]|[^a-zA-Z0-9_]")

log = get_logger("gantrymq.metrics")

Collect = Callable[[], Awaitable[Sequence[Family]]]


class ScrapeServer:
    """Answers scrapes with what ``collect`` returns. ``common`` are the labels that every series has.

    ``port`` 0 takes a free port; :attr:`port` is known after :meth:`bind`.
    """

    def __init__(self, collect: Collect, common: Mapping[str, str]) -> None:
        self._collect, self._loop = collect, asyncio.get_running_loop()
        self._snapshot: asyncio.Task[Sequence[Family]] | None = None
        self._server: _HttpServer | None = None
        registry = CollectorRegistry(support_collectors_without_names=True)
        registry.register(SnapshotCollector(self._families_now, common))
        self._scrape: WSGIApplication = make_wsgi_app(registry)
        self.host, self.port = "", 0

    def bind(self, host: str, port: int) -> None:
        """Take the port. Connections are accepted after :meth:`serve`. Raises RemotingError if the port is taken."""
        try:
            self._server = _HttpServer(host, port, self._app)
        except (OSError, UnicodeError) as error:
            raise RemotingError(f"cannot listen on {host}:{port} for metrics: {system_reason(error)}") from error
        self.host, self.port = host, self._server.server_port

    def serve(self) -> None:
        """Begin to answer scrapes."""
        assert self._server is not None, "bind comes first"
        self._loop.add_reader(self._server.fileno(), self._accept)

    def _accept(self) -> None:
        """Take a connection. Without a free file descriptor it keeps waiting, so look again only after a pause."""
        server = self._server
        if server is None:
            return
        server.handle_request()
        if server.is_exhausted:
            self._loop.remove_reader(server.fileno())
            self._loop.call_later(_EXHAUSTED_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        if self._server is not None:
            self.serve()

    def close(self) -> None:
        """Stop listening, and end all connections. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        self._loop.remove_reader(server.fileno())
        server.server_close()
        if self._snapshot is not None:
            self._snapshot.cancel()

    async def _families(self) -> Sequence[Family]:
        """A snapshot. Callers that come while one is made share it."""
        if self._snapshot is None:
            self._snapshot = asyncio.ensure_future(self._collect())
            self._snapshot.add_done_callback(self._forget_snapshot)
        return await asyncio.shield(self._snapshot)

    def _forget_snapshot(self, _: asyncio.Task[Sequence[Family]]) -> None:
        self._snapshot = None

    # On the thread of a connection

    def _families_now(self) -> Sequence[Family]:
        """A snapshot. Raises if the event loop has ended, or does not answer in time."""
        snapshot = self._families()
        try:
            future = asyncio.run_coroutine_threadsafe(snapshot, self._loop)
        except RuntimeError:
            snapshot.close()
            raise
        return future.result(_TIMEOUT_S)

    def _app(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/-/healthy":
            return _answer(start_response, HTTPStatus.OK, b"Exporter is healthy.\n")
        if path not in ("/", "/metrics"):
            return _answer(start_response, HTTPStatus.NOT_FOUND, b"The metrics are at /metrics\n")
        try:
            return self._scrape(environ, start_response)
        except Exception:  # the scraper gets an answer, and the next scrape may succeed
            if self._server is not None:
                log.exception("metrics could not be collected")
            return _answer(start_response, HTTPStatus.INTERNAL_SERVER_ERROR, b"")


def _answer(start_response: StartResponse, status: HTTPStatus, body: bytes) -> list[bytes]:
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    start_response(f"{status.value} {status.phrase}", fields)
    return [body]


class _HttpServer(ThreadingWSGIServer):
    """prometheus-client's server with limits, and without lines on stderr."""

    request_queue_size = 64
    timeout = 0  # handle_request is called when a connection waits

    def __init__(self, host: str, port: int, app: WSGIApplication) -> None:
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.is_exhausted = False
        self._open: dict[Any, None] = {}  # the sockets, oldest first
        self._lock = threading.Lock()
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]  # a pair for IPv6, too
        self.socket.setblocking(False)  # the connection may have gone
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without a search for the host's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def get_request(self) -> Any:
        """Accept a connection, and note whether there was no room for it."""
        try:
            self.is_exhausted = False
            return super().get_request()
        except OSError as error:
            self.is_exhausted = error.errno in _EXHAUSTED
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection on a thread."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > MAX_CONNECTIONS:
                _end(next(iter(self._open)))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection, and close it. Thread rule: any thread."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a scraper has left or is too slow."""

    def server_close(self) -> None:
        """Close the listening socket, and end the connections."""
        super().server_close()
        with self._lock:
            for request in self._open:
                _end(request)


def _end(connection: Any) -> None:
    """End a connection, so that its thread stops. The thread closes the socket."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def get_stderr(self) -> Any:
        """Take the traceback of a scraper that has left."""
        return io.StringIO()


class SnapshotCollector(Collector):
    """Yields prometheus-client's families of a snapshot, sorted by name. Thread rule: any thread."""

    def __init__(self, families: Callable[[], Sequence[Family]], common: Mapping[str, str]) -> None:
        self._families = families
        self._common = {label_name(name): value for name, value in common.items()}

    def collect(self) -> Iterator[PrometheusFamily]:
        """The families that have series."""
        for family in sorted(self._families(), key=lambda family: family.metric.prometheus_name):
            if family.points or family.overflow is not None:
                made = _head(family.metric)
                made.samples = _Samples(family, self._common)  # type: ignore[assignment]  # iterated once
                yield made
        yield _target()


def _head(metric: Metric) -> PrometheusFamily:
    name = metric.prometheus_name
    name = name.removesuffix("_total") if metric.kind is Kind.COUNTER else name
    return PrometheusFamily(name, metric.description, metric.kind.value, metric.prometheus_unit)


def _target() -> PrometheusFamily:
    made = PrometheusFamily("target", "Target metadata", "info")
    made.add_sample("target_info", {}, 1)
    return made


class _Samples:
    """The samples of a family, made when they are iterated."""

    def __init__(self, family: Family, common: dict[str, str]) -> None:
        self._family, self._common = family, common

    def __iter__(self) -> Iterator[Sample]:
        for number, sample in enumerate(self._made(), 1):
            yield sample
            if number % _SAMPLES_A_TURN == 0:
                time.sleep(_PAUSE_S)

    def _made(self) -> Iterator[Sample]:
        metric, overflow = self._family.metric, self._family.overflow
        name, others = metric.prometheus_name, self._common
        for labels, value in self._family.points:
            yield from _samples(name, metric, others | _named(metric.labels, labels), value)
        if overflow is not None:
            labels_of_overflow = {name: value for name, value in others.items() if name == SCOPE_LABEL}
            yield from _samples(name, metric, {**labels_of_overflow, OVERFLOW_LABEL: "true"}, overflow)


def _named(names: tuple[str, ...], labels: LabelValues) -> dict[str, str]:
    return {name: encodable(value) for name, value in zip(names, labels, strict=True) if value is not None}


def _samples(name: str, metric: Metric, labels: dict[str, str], value: object) -> Iterator[Sample]:
    if not isinstance(value, HistogramValue):
        yield Sample(name, labels, value)  # type: ignore[arg-type]
        return
    so_far = 0
    for bound, count in zip((*metric.buckets, None), value.counts, strict=True):
        so_far += count
        yield Sample(f"{name}_bucket", {**labels, "le": "+Inf" if bound is None else str(float(bound))}, so_far)
    yield Sample(f"{name}_count", labels, so_far)
    yield Sample(f"{name}_sum", labels, value.sum)


def label_name(name: str) -> str:
    """A name of an operator's label as Prometheus allows it: other characters become underscores."""
    return _NOT_IN_A_LABEL.sub("_", name)
