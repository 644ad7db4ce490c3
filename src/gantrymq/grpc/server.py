"""The gRPC server: the table of calls, their senders, and what happens to errors.

    server = GrpcServer(GrpcConfig(), brokers, clock)
    await server.start("127.0.0.1", 8081)
    print(server.port)
    await server.close()

PullMessage, UpdateOffset, GetOffset, QueryOffset and SyncLiteSubscription are UNIMPLEMENTED. RocketMQ's proxy does not
implement the first four either.

Source: GrpcMessagingApplication, GrpcServer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import GantrymqError, RemotingError
from gantrymq.grpc.brokers.interface import Brokers
from gantrymq.grpc.brokers.popped import PoppedMessages
from gantrymq.grpc.calls.acks import SettleMessages
from gantrymq.grpc.calls.recall import RecallMessage
from gantrymq.grpc.calls.receive import ReceiveMessage
from gantrymq.grpc.calls.route import Routes
from gantrymq.grpc.calls.send import SendMessage
from gantrymq.grpc.calls.telemetry import Nonces, RequestsToClients, Telemetry
from gantrymq.grpc.calls.transactions import Transactions
from gantrymq.grpc.clients.registry import Client, Clients
from gantrymq.grpc.clients.renewal import Renewals
from gantrymq.grpc.metrics import GrpcMetrics
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.caller import Caller, address_of, metadata_of, read_caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.signatures import CallGuard, SignatureGuard
from gantrymq.grpc.protocol.status import CallError, status_of_error
from gantrymq.grpc.tls_port import TlsPort
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.tls import TlsMode, TlsServer

_EXPIRE_PERIOD_S = 5.0
_GRACE_S = 1.0  # for the calls under way when the server is stopped; RocketMQ's proxy has 30 s
Call = Callable[[Caller, Any], Awaitable[Any]]

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a second server on the port is an error
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)

_DAMAGED, _NO_PROTOBUF = object(), "Invalid protobuf byte sequence"  # gRPC's text in Java

log = get_logger("gantrymq.grpc")


class GrpcServer:
    """Serves RocketMQ's MessagingService for ``brokers``. Construct, ``start`` and ``close`` it on one event loop.

    ``guard`` says whose call it is. ``advertised_host`` is the host for clients that do not say which
    address they used. With ``tls`` the port answers TLS, and plain text unless its mode is enforcing. ``metrics`` gets
    the latency of each call.
    """

    def __init__(
        self,
        config: GrpcConfig,
        brokers: Brokers,
        clock: Clock,
        *,
        guard: CallGuard | None = None,
        advertised_host: str = "127.0.0.1",
        tls: TlsServer | None = None,
        metrics: GrpcMetrics | None = None,
    ) -> None:
        self._now_s, self._metrics = clock.monotonic_s, metrics
        self._guard = guard = guard or SignatureGuard(None)
        self._host, self.port = advertised_host, 0
        self._tls = None if tls is None or tls.mode is TlsMode.DISABLED else tls
        self._tls_port = None if self._tls is None else TlsPort(self._tls)
        self._config, popped, nonces = config, PoppedMessages(brokers, clock), Nonces(config.relay_timeout_s)
        self._transactions = transactions = Transactions(config, brokers, clock)
        self._renewals = renewals = Renewals(config, brokers, popped, clock)
        requests = RequestsToClients(clock, transactions, nonces, guard)
        self._clients = clients = Clients(config, brokers, clock, requests.answer, self._left)
        self._receives = ReceiveMessage(config, brokers, clock, clients, popped, renewals)
        self._telemetry = telemetry = Telemetry(config, brokers, clock, clients, nonces)
        routes, settles = (
            Routes(brokers, lambda: f"{self._host}:{self.port}"),
            SettleMessages(config, clients, popped, renewals),
        )
        self._calls: dict[str, Call] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "Heartbeat": telemetry.heartbeat,
            "NotifyClientTermination": telemetry.terminated,
            "SendMessage": SendMessage(config, brokers, clock, transactions).send,
            "RecallMessage": RecallMessage(config, brokers).recall,
            "EndTransaction": transactions.end,
            "AckMessage": settles.ack,
            "ChangeInvisibleDuration": settles.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": settles.forward_to_dead_letters,
        }
        self._server: grpc.aio.Server | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises RemotingError if the port is in use."""
        self._server = server = grpc.aio.server(options=self._options())
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(messages.SERVICE, self._handlers()),))
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        address = shown if self._tls_port is None else self._tls_port.open_inner()
        try:
            self.port = server.add_insecure_port(address)
            await server.start()
            if self._tls_port is not None:
                self.port = await self._tls_port.start(host, port)
        except RuntimeError as error:
            await self.abandon()
            raise RemotingError(f"cannot listen on {shown}: {error}") from error
        except RemotingError:
            await self.abandon()
            raise
        expires = [self._clients.expire, self._transactions.expire]
        if self._tls is not None:
            expires.append(self._tls.reload)
        renew_s = self._config.renew_period_ms / 1000
        chores = _every(_EXPIRE_PERIOD_S, *expires), _every(renew_s, self._renewals.renew)
        self._chores = [asyncio.ensure_future(chore) for chore in chores]

    def _options(self) -> list[tuple[str, int]]:
        config = self._config
        return [
            *_OPTIONS,
            ("grpc.max_receive_message_length", config.max_inbound_bytes),
            ("grpc.max_concurrent_streams", config.max_concurrent_calls),
            ("grpc.max_connection_idle_ms", config.idle_connection_ms),
        ]

    async def renew(self) -> int | None:
        """Hide the messages in work again that become visible soon, before the clock is moved.

        Returns how far it may be moved until the next ones are due, in ms; None if there are none.
        """
        self._renewals.renew()
        await self._renewals.drain()
        return self._renewals.next_ms()

    async def close(self) -> None:
        """Answer the calls under way, and let unsettled messages of clients become visible. Idempotent.

        A call that takes longer than a second is cancelled.
        """
        server, self._server = self._server, None
        if server is None:
            return
        self._receives.end_waiting()
        self._clients.close()
        await self._stop(server, _GRACE_S)
        await self._renewals.drain()
        await self._receives.drain()

    async def abandon(self) -> None:
        """End as a killed process ends: connections break, no broker is told."""
        server, self._server = self._server, None
        if server is not None:
            await self._stop(server, 0)

    async def _stop(self, server: grpc.aio.Server, grace_s: float) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        if self._tls_port is not None:
            self._tls_port.stop_listening()
        await server.stop(grace_s)
        if self._tls_port is not None:
            await self._tls_port.close(grace_s)

    def _left(self, client: Client) -> None:
        self._renewals.left(client)

    # Calls

    def _handlers(self) -> dict[str, Any]:
        handlers = {name: self._unary(name, call) for name, call in self._calls.items()}
        handlers["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
            self._receive,
            request_deserializer=_reader(messages.ReceiveMessageRequest),
            response_serializer=messages.ReceiveMessageResponse.SerializeToString,
        )
        handlers["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=_reader(messages.TelemetryCommand),
            response_serializer=messages.TelemetryCommand.SerializeToString,
        )
        return handlers

    def _unary(self, name: str, call: Call) -> Any:
        request_type, response_type = messages.types_of(name)

        async def answer(request: Any, context: Any) -> Any:
            if request is _DAMAGED:
                await context.abort(grpc.StatusCode.INTERNAL, _NO_PROTOBUF)
            began_s = self._now_s()
            try:
                caller = await self._caller(context, name, request)
                try:
                    response = await call(caller, request)
                except GantrymqError:
                    await self._guard.recheck(caller)  # the reason may be what the caller may not know
                    raise
                if response.status.code >= Code.BAD_REQUEST:
                    await self._guard.recheck(caller)
            except Exception as error:
                response = response_type(status=status_of_error(error))
            if self._metrics is not None:
                self._metrics.answered(name, response.status.code, self._now_s() - began_s)
            return response

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=_reader(request_type),
            response_serializer=response_type.SerializeToString,
        )

    async def _receive(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if request is _DAMAGED:
            await context.abort(grpc.StatusCode.INTERNAL, _NO_PROTOBUF)
        began_s, code = self._now_s(), 0
        try:
            caller = await self._caller(context, "ReceiveMessage", request)
            try:
                async for response in self._receives.receive(caller, request, context.time_remaining()):
                    if response.status.code >= Code.BAD_REQUEST:
                        await self._guard.recheck(caller)
                    code = code or response.status.code
                    yield response
            except GantrymqError:
                await self._guard.recheck(caller)
                raise
        except Exception as error:
            failed = messages.ReceiveMessageResponse(status=status_of_error(error))
            code = failed.status.code
            yield failed
            yield self._receives.end()
        if self._metrics is not None:
            self._metrics.answered("ReceiveMessage", code, self._now_s() - began_s)

    async def _stream(self, commands: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        try:
            caller = await self._caller(context, "Telemetry", None)
            async for command in self._telemetry.stream(caller, _whole(commands)):
                yield command
        except CallError as error:
            is_client = Code.BAD_REQUEST <= error.code < Code.INTERNAL_ERROR
            code = grpc.StatusCode.INVALID_ARGUMENT if is_client else grpc.StatusCode.INTERNAL
            await context.abort(code, f"process client telemetryCommand failed. {error.message}")
        except GantrymqError as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"process client telemetryCommand failed. {error}")

    async def _caller(self, context: Any, call: str, request: Any) -> Caller:
        metadata = metadata_of(context)
        address = address_of(context.peer(), self._tls_port.client_of if self._tls_port is not None else None)
        return read_caller(metadata, address, await self._guard.identify(metadata, address, call, request))


def _reader(message_type: Any) -> Callable[[bytes], Any]:
    """A reader of messages. If it raised, grpcio would log a traceback for each message that a stranger damages."""

    def read(raw: bytes) -> Any:
        try:
            return message_type.FromString(raw)
        except DecodeError:
            return _DAMAGED

    return read


async def _whole(commands: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for command in commands:
        if command is _DAMAGED:
            raise CallError(Code.INTERNAL_ERROR, _NO_PROTOBUF)
        yield command


async def _every(period_s: float, *chores: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(period_s)
        for chore in chores:
            try:
                chore()
            except Exception as error:  # the others, and the next round, must not end with it
                log.exception("a periodic task of the gRPC server failed", exc_info=error)
