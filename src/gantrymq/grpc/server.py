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
from contextlib import aclosing
from typing import Any

from google.protobuf.message import DecodeError

from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import GantrymqError
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
from gantrymq.grpc.protocol.caller import Caller, read_caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.signatures import Authenticate
from gantrymq.grpc.protocol.status import CallError, status_of_error
from gantrymq.grpc.transport.connection import GrpcCall, GrpcService, Method
from gantrymq.grpc.transport.framing import CallAborted, GrpcStatus
from gantrymq.grpc.transport.port import GrpcPort
from gantrymq.http2.limits import Limits
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.tls import TlsMode, TlsServer

_EXPIRE_PERIOD_S = 5.0
_GRACE_S = 1.0  # for the calls under way when the server is stopped; RocketMQ's proxy has 30 s
Answer = Callable[[Caller, Any], Awaitable[Any]]

_NO_PROTOBUF = "Invalid protobuf byte sequence"  # gRPC's text in Java

log = get_logger("gantrymq.grpc")


class GrpcServer:
    """Serves RocketMQ's MessagingService for ``brokers``. Construct, ``start`` and ``close`` it on one event loop.

    ``authenticate`` reads the signature of a call. ``advertised_host`` is the host for clients that do not say which
    address they used. With ``tls`` the port answers TLS, and plain text unless its mode is enforcing. ``metrics`` gets
    the latency of each call.
    """

    def __init__(
        self,
        config: GrpcConfig,
        brokers: Brokers,
        clock: Clock,
        *,
        authenticate: Authenticate = lambda metadata, address: None,
        advertised_host: str = "127.0.0.1",
        tls: TlsServer | None = None,
        metrics: GrpcMetrics | None = None,
    ) -> None:
        self._now_s, self._metrics = clock.monotonic_s, metrics
        self._authenticate, self._host, self.port = authenticate, advertised_host, 0
        self._tls = TlsServer(TlsMode.DISABLED) if tls is None else tls
        self._config, popped, nonces = config, PoppedMessages(brokers, clock), Nonces(config.relay_timeout_s)
        self._transactions = transactions = Transactions(config, brokers, clock)
        self._renewals = renewals = Renewals(config, brokers, popped, clock)
        requests = RequestsToClients(clock, transactions, nonces)
        self._clients = clients = Clients(config, brokers, clock, requests.answer, self._left)
        self._receives = ReceiveMessage(config, brokers, clock, clients, popped, renewals)
        self._telemetry = telemetry = Telemetry(config, brokers, clock, clients, nonces)
        routes, settles = (
            Routes(brokers, lambda: f"{self._host}:{self.port}"),
            SettleMessages(config, clients, popped, renewals),
        )
        self._calls: dict[str, Answer] = {
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
        self._port: GrpcPort | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises RemotingError if the port is in use."""
        grpc_port = GrpcPort(self._service(), self._tls)
        self.port = await grpc_port.start(host, port)
        self._port = grpc_port
        expires = [self._clients.expire, self._transactions.expire, self._tls.reload, grpc_port.check]
        renew_s = self._config.renew_period_ms / 1000
        chores = _every(_EXPIRE_PERIOD_S, *expires), _every(renew_s, self._renewals.renew)
        self._chores = [asyncio.ensure_future(chore) for chore in chores]

    def _service(self) -> GrpcService:
        methods = {name: Method(self._unary(name, call)) for name, call in self._calls.items()}
        methods["ReceiveMessage"] = Method(self._receive)
        methods["Telemetry"] = Method(self._stream, has_stream=True)
        return GrpcService(
            {f"/{messages.SERVICE}/{name}": method for name, method in methods.items()},
            self._config.max_inbound_bytes,
            self._config.idle_connection_ms / 1000,
            Limits(max_streams=min(self._config.max_concurrent_calls, Limits().max_streams)),
        )

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
        port, self._port = self._port, None
        if port is None:
            return
        self._receives.end_waiting()
        self._clients.close()
        await self._end_chores()
        await port.close(_GRACE_S)
        await self._renewals.drain()
        await self._receives.drain()

    async def abandon(self) -> None:
        """End as a killed process ends: connections break, no broker is told."""
        port, self._port = self._port, None
        if port is not None:
            await self._end_chores()
            await port.abandon()

    async def _end_chores(self) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)

    def _left(self, client: Client) -> None:
        self._renewals.left(client)

    # Calls

    def _unary(self, name: str, answer: Answer) -> Callable[[GrpcCall], Awaitable[None]]:
        request_type, response_type = messages.types_of(name)

        async def answer_call(call: GrpcCall) -> None:
            request = _parsed(request_type, call.request)
            began_s = self._now_s()
            try:
                response = await answer(self._caller(call), request)
            except Exception as error:
                response = response_type(status=status_of_error(error))
            if self._metrics is not None:
                self._metrics.answered(name, response.status.code, self._now_s() - began_s)
            await call.send(response.SerializeToString())

        return answer_call

    async def _receive(self, call: GrpcCall) -> None:
        request = _parsed(messages.ReceiveMessageRequest, call.request)
        began_s, code = self._now_s(), 0
        try:
            async with aclosing(self._receives.receive(self._caller(call), request, call.remaining_s())) as responses:
                async for response in responses:
                    code = code or response.status.code
                    await call.send(response.SerializeToString())
        except Exception as error:
            failed = messages.ReceiveMessageResponse(status=status_of_error(error))
            code = failed.status.code
            await call.send(failed.SerializeToString())
            await call.send(self._receives.end().SerializeToString())
        if self._metrics is not None:
            self._metrics.answered("ReceiveMessage", code, self._now_s() - began_s)

    async def _stream(self, call: GrpcCall) -> None:
        try:
            async with aclosing(self._telemetry.stream(self._caller(call), _commands(call))) as commands:
                async for command in commands:
                    await call.send(command.SerializeToString())
        except CallError as error:
            is_client = Code.BAD_REQUEST <= error.code < Code.INTERNAL_ERROR
            status = GrpcStatus.INVALID_ARGUMENT if is_client else GrpcStatus.INTERNAL
            raise CallAborted(status, f"process client telemetryCommand failed. {error.message}") from None
        except GantrymqError as error:
            raise CallAborted(GrpcStatus.INTERNAL, f"process client telemetryCommand failed. {error}") from None

    def _caller(self, call: GrpcCall) -> Caller:
        return read_caller(call.metadata, call.address, self._authenticate(call.metadata, call.address))


def _parsed(message_type: Any, raw: bytes) -> Any:
    """A request. Raises CallAborted for bytes that are none."""
    try:
        return message_type.FromString(raw)
    except DecodeError:
        raise CallAborted(GrpcStatus.INTERNAL, _NO_PROTOBUF) from None


async def _commands(call: GrpcCall) -> AsyncIterator[Any]:
    while (raw := await call.next_request()) is not None:
        yield _parsed(messages.TelemetryCommand, raw)


async def _every(period_s: float, *chores: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(period_s)
        for chore in chores:
            try:
                chore()
            except Exception as error:  # the others, and the next round, must not end with it
                log.exception("a periodic task of the gRPC server failed", exc_info=error)
