"""Requests over plain sockets, one at a time or pipelined. Spark executors use it.

It needs no thread and no event loop. Thread rule: one thread at a time.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from gantrymq.client.requests.calls import Call
from gantrymq.client.runtime.own_process import OwnProcess
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import (
    MQClientError,
    RemotingCommandError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    system_reason,
)
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.transport.client import split_address
from gantrymq.remoting.transport.tls import tls_client

RECEIVE_BYTES = 512 * 1024

T = TypeVar("T")


class BlockingConnection:
    """One connection to ``address``, for one caller at a time. Close it after any RemotingError.

    The constructor raises RemotingConnectError if it cannot connect. In a forked process MQClientError is raised, and
    nothing is sent or received.
    """

    def __init__(self, address: str, config: ClientConfig, clock: Clock) -> None:
        self.address = address
        self._config, self._clock = config, clock
        self._connection = Connection()
        self._received: deque[RemotingCommand] = deque()
        self._unsent: list[bytes] = []
        self._unanswered: set[int] = set()
        self._opaque = 0
        self._process = OwnProcess("connection")
        self._socket = self._connect(tls_client(config.tls))

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and sound, and no answer to an earlier request is missing."""
        return not self._unanswered and self._connection.error is None and self._socket.fileno() >= 0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing can be read.

        Otherwise the server has sent data, or has closed the connection, as servers do after two idle minutes.
        """
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return not readable.poll(0)

    def send(self, command: RemotingCommand) -> int:
        """Queue a request and return its opaque. Does not wait for the answer.

        The request is sent by the next :meth:`receive`, together with all others queued until then: for many small
        requests the system calls are the largest cost.
        """
        command.opaque = self._opaque
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        command.serialize_type = self._config.serialize_type
        credentials = self._config.credentials
        if credentials is not None:
            credentials.sign(command)
        self._unsent.append(encode_command(command))
        self._unanswered.add(command.opaque)
        return command.opaque

    def _send_all(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        try:
            self._socket.settimeout(self._config.request_timeout_ms / 1000)
            self._socket.sendall(data)
        except OSError as error:
            raise RemotingConnectError(self.address, f"cannot send: {error.strerror or error}") from error

    def receive(self, timeout_ms: int) -> RemotingCommand:
        """The next response to a request of this connection. Requests of the other side are ignored.

        Raises RemotingTimeoutError, RemotingConnectError, or RemotingCommandError for an invalid command or a response
        to no request of ours.
        """
        self._process.check()
        deadline = self._clock.monotonic_s() + timeout_ms / 1000
        while not self._received:
            if self._connection.error is not None:
                raise self._connection.error
            if self._unsent:
                self._send_all()
            try:
                self._socket.settimeout(max(deadline - self._clock.monotonic_s(), 0.001))
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError as error:
                raise RemotingTimeoutError(self.address, timeout_ms) from error
            except OSError as error:
                raise RemotingConnectError(self.address, f"the connection broke: {error.strerror or error}") from error
            if not data:
                raise RemotingConnectError(self.address, "the connection was closed")
            self._received += [command for command in self._connection.receive(data) if command.is_response]
        response = self._received.popleft()
        if response.opaque not in self._unanswered:
            raise RemotingCommandError(f"{self.address}: an answer to request {response.opaque}, which was not sent")
        self._unanswered.remove(response.opaque)
        return response

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _connect(self, tls: ssl.SSLContext | None) -> socket.socket:
        plain: socket.socket | None = None
        try:
            plain = socket.create_connection(split_address(self.address), self._config.connect_timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if tls is None else tls.wrap_socket(plain)
        except OSError as error:
            if plain is not None:
                plain.close()
            raise RemotingConnectError(self.address, f"cannot connect: {system_reason(error)}") from error


class BlockingClient:
    """Sends requests to addresses, over pooled connections, and to the name servers in turn until one answers.

    with BlockingClient(ClientConfig("127.0.0.1:9876")) as client:
        route = client.ask_name_server(topic_route("TopicTest"))

    With ``unanswered`` (a table of errors by address) a server that did not answer is not asked again: its error is
    raised at once, so that many requests wait for one timeout instead of one each. Clients may share a table.
    """

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._idle = defaultdict[str, list[BlockingConnection]](list)
        self._lent: set[BlockingConnection] = set()
        self._name_servers = config.name_server_list
        self._process = OwnProcess("client")
        self._is_closed = False
        self.unanswered: dict[str, RemotingError] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, those in use too. After that every request raises MQClientError."""
        self._is_closed = True
        for address in list(self._idle):
            self.drop(address)
        for connection in self._lent:
            connection.close()

    @contextmanager
    def connection(self, address: str) -> Iterator[BlockingConnection]:
        """Lend a connection to an address: an idle one that is still open, or a new one.

        A connection that is returned with answers outstanding, after an error for example, is closed. Raises
        MQClientError in a forked process, because two processes that read one socket take each other's answers.
        """
        self._process.check()
        if self._is_closed:
            raise MQClientError("the client is closed")
        connection = self._idle_connection(address) or BlockingConnection(address, self.config, self._clock)
        self._lent.add(connection)
        try:
            yield connection
        finally:
            self._lent.remove(connection)
            if connection.is_idle:
                self._idle[address].append(connection)
            else:
                connection.close()

    def _idle_connection(self, address: str) -> BlockingConnection | None:
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.is_quiet:
                return connection
            connection.close()
        return None

    def drop(self, address: str) -> None:
        """Close the idle connections to an address: after one broke, the others have probably broken too."""
        for connection in self._idle.pop(address, ()):
            connection.close()

    def call(self, address: str, call: Call[T], timeout_ms: int | None = None) -> T:
        """Send a request to an address and return its answer.

        Raises RemotingError, or MQBrokerError if the broker refuses the request.
        """
        wait_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        known = None if self.unanswered is None else self.unanswered.get(address)
        if known is not None:
            raise known
        try:
            with self.connection(address) as connection:
                connection.send(call.request())
                response = connection.receive(wait_ms)
        except RemotingError as error:
            self.drop(address)
            if self.unanswered is not None and isinstance(error, RemotingConnectError | RemotingTimeoutError):
                self.unanswered[address] = error
            raise
        return call.read(response, address)

    def ask_name_server(self, call: Call[T]) -> T:
        """Ask the name servers in turn and return the first answer. The next call begins with the same name server.

        Raises RemotingConnectError, which names all of them, if none answers.
        """
        failures = []
        for address in list(self._name_servers):
            try:
                return self.call(address, call)
            except RemotingError as error:
                failures.append(str(error))
                self._name_servers.append(self._name_servers.pop(0))
        raise RemotingConnectError("no name server answers", "; ".join(failures))
