"""Telemetry, Heartbeat and NotifyClientTermination: how clients are known, and what the server asks them.

A client opens one stream for commands in both directions. It sends its settings, and gets them back merged. The server
sends checks of transactions, messages to verify, and requests for a dump of the threads; the answers to the last two
come back with the number (nonce) of the request.

Source: ClientActivity, GrpcClientChannel, GrpcChannelManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from itertools import count
from typing import Any

from gantrymq.client.requests.records import decode_records
from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import RemotingConnectError
from gantrymq.grpc.brokers.interface import Brokers
from gantrymq.grpc.calls.transactions import Transactions
from gantrymq.grpc.clients.registry import Client, Clients, Outbox
from gantrymq.grpc.clients.settings import CONSUMERS, merged_settings
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import ClientType, Code
from gantrymq.grpc.protocol.convert import to_message
from gantrymq.grpc.protocol.messages import HeartbeatResponse, NotifyClientTerminationResponse, TelemetryCommand
from gantrymq.grpc.protocol.status import CallError, status
from gantrymq.grpc.protocol.validation import require_group, require_topic
from gantrymq.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import GetConsumerRunningInfoRequestHeader

_UNKNOWN_CLIENT = "cannot find client settings for this client"
_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class Nonces:
    """The requests to clients that wait for an answer, ``timeout_s`` at most."""

    def __init__(self, timeout_s: float) -> None:
        self._numbers, self._timeout_s = count(), timeout_s
        self._waiting: dict[str, tuple[Client, asyncio.Future[Any]]] = {}

    async def ask(self, client: Client, made: Callable[[str], Any]) -> Any:
        """Send the command that ``made`` makes of a nonce. Returns the client's command, or None if it is late.

        Raises RemotingConnectError if the client has no stream.
        """
        nonce = str(next(self._numbers))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = client, future
        try:
            if not client.tell(made(nonce)):
                raise RemotingConnectError(client.caller.address, "the client has no telemetry stream")
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[nonce]

    def answered(self, client: Client, nonce: str, command: Any) -> None:
        """Take a client's answer. A number that it was not asked with is ignored."""
        waiting = self._waiting.get(nonce)
        if waiting is not None and waiting[0] is client and not waiting[1].done():
            waiting[1].set_result(command)


class Telemetry:
    """Answers the three calls. Thread rule: the event loop's thread."""

    def __init__(self, config: GrpcConfig, brokers: Brokers, clock: Clock, clients: Clients, nonces: Nonces) -> None:
        self._config, self._brokers, self._clock, self._clients = config, brokers, clock, clients
        self._nonces = nonces

    # Streams

    async def stream(self, caller: Caller, commands: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The commands for a client, while those of the client are taken.

        Raises CallError for a wrong command, which ends the stream.
        """
        outbox = Outbox()
        reading = asyncio.ensure_future(self._read(caller, commands, outbox))
        reading.add_done_callback(lambda _: outbox.close())
        try:
            while (command := await outbox.next()) is not None:
                yield command
            if reading.done() and not reading.cancelled():
                reading.result()
        finally:
            reading.cancel()
            client = self._clients.find(caller.client_id)
            if client is not None:
                self._clients.detach(client, outbox)

    async def _read(self, caller: Caller, commands: AsyncIterator[Any], outbox: Outbox) -> None:
        async for command in commands:
            kind = command.WhichOneof("command")
            if kind == "settings":
                await self._take_settings(caller, command.settings, outbox)
                await outbox.emptied()  # the answer is as large as the settings, so few may wait
            elif kind in ("thread_stack_trace", "verify_message_result"):
                client = self._clients.of(caller)
                self._nonces.answered(client, getattr(command, kind).nonce, command)

    async def _take_settings(self, caller: Caller, sent: Any, outbox: Outbox) -> None:
        if sent.HasField("publishing"):
            for topic in sent.publishing.topics:
                require_topic(topic.name)
        elif sent.HasField("subscription"):
            require_group(sent.subscription.group.name)
            if sent.client_type not in CONSUMERS:
                kind = ClientType(sent.client_type).name if sent.client_type in iter(ClientType) else "UNRECOGNIZED"
                raise CallError(Code.UNRECOGNIZED_CLIENT_TYPE, f"Client type is not consumer, type: {kind}")
        else:
            raise CallError(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        client = self._clients.of(caller)
        self._clients.attach(client, outbox)
        self._clients.keep_settings(client, sent)
        await self._clients.register(client, caller)
        group = await self._brokers.group(caller, client.group) if client.is_consumer else None
        merged = merged_settings(self._config, client.settings, group, self._brokers.max_body_bytes)
        if not outbox.offer(TelemetryCommand(status=status(Code.OK), settings=merged)):
            raise CallError(Code.TOO_MANY_REQUESTS, "the client does not read its telemetry stream")

    # Calls

    async def heartbeat(self, caller: Caller, request: Any) -> Any:
        """The answer to a HeartbeatRequest."""
        client = self._clients.find(caller.client_id)
        if client is None or client.settings is None:
            return HeartbeatResponse(status=status(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN_CLIENT))
        self._clients.of(caller)
        if client.is_consumer:
            require_group(request.group.name)
        await self._clients.register(client, caller)
        return HeartbeatResponse(status=status(Code.OK))

    async def terminated(self, caller: Caller, request: Any) -> Any:
        """The answer to a NotifyClientTerminationRequest. The client is forgotten."""
        client = self._clients.find(caller.client_id)
        if client is None or client.settings is None:
            return NotifyClientTerminationResponse(status=status(Code.UNRECOGNIZED_CLIENT_TYPE, _UNKNOWN_CLIENT))
        self._clients.of(caller)
        if client.is_consumer:
            require_group(request.group.name)
        self._clients.forget(client)
        return NotifyClientTerminationResponse(status=status(Code.OK))


class RequestsToClients:
    """Answers what brokers ask clients: about transactions, messages and threads."""

    def __init__(self, clock: Clock, transactions: Transactions, nonces: Nonces) -> None:
        self._clock, self._transactions, self._nonces = clock, transactions, nonces

    async def answer(self, client: Client, request: RemotingCommand) -> RemotingCommand | None:
        """The client's answer to a broker's request; None if there is none."""
        if request.code == RequestCode.CHECK_TRANSACTION_STATE:
            client.tell(self._transactions.check(request))
            return None
        if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return await self._verify(client, request)
        if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return await self._running_info(client, request)
        return None

    async def _verify(self, client: Client, request: RemotingCommand) -> RemotingCommand:
        message = to_message(next(iter(decode_records(request.body, decompressed=False))), self._clock.now_ms())

        def made(nonce: str) -> Any:
            command = TelemetryCommand()
            command.verify_message_command.nonce = nonce
            command.verify_message_command.message.CopyFrom(message)
            return command

        answer = await self._nonces.ask(client, made)
        if answer is None:
            return request.response(ResponseCode.SYSTEM_BUSY, "call remote timeout")
        result = ConsumeMessageDirectlyResult(
            consume_result=_RESULTS.get(answer.status.code), remark="from gRPC client"
        )
        return request.response(ResponseCode.SUCCESS, "", body=result.encode())

    async def _running_info(self, client: Client, request: RemotingCommand) -> RemotingCommand:
        """RocketMQ's proxy does not answer a request without ``jstackEnable``; here the subscriptions are returned."""
        info = ConsumerRunningInfo(subscription_set=client.subscriptions)
        if request.read(GetConsumerRunningInfoRequestHeader).jstack_enable:

            def made(nonce: str) -> Any:
                command = TelemetryCommand()
                command.print_thread_stack_trace_command.nonce = nonce
                return command

            answer = await self._nonces.ask(client, made)
            if answer is None:
                return request.response(ResponseCode.SYSTEM_BUSY, "call remote timeout")
            if answer.status.code == Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED:
                return request.response(ResponseCode.NO_PERMISSION, "forbidden to verify message")
            if answer.status.code != Code.OK:
                return request.response(ResponseCode.SYSTEM_ERROR, "verify message failed")
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        return request.response(ResponseCode.SUCCESS, "", body=info.encode())
