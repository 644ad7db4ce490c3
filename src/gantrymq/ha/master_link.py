"""A slave's end of a connection to a master's HA port: request, frames, reports.

As RocketMQ's slave: the first report is the request; a report is sent again after 5 s without one, since the master
closes a connection without reports after 20 s; a master that is silent for 20 s is given up.

Thread rule: one thread at a time.

Source: DefaultHAClient.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gantrymq.clock import Clock
from gantrymq.ha.frames import FrameReader, LogFrame, encode_report

RECEIVE_BYTES = 512 << 10
REPORT_AGAIN_S = 5.0
SILENT_S = 20.0
RECONNECT_S = 5.0

Connect = Callable[[tuple[str, int], float], socket.socket]  # (address, seconds), as socket.create_connection


class MasterLink:
    """A connection to ``address`` (host, port) that has asked for the log from ``offset`` on.

    With ``is_silent`` the request is followed by a report of offset 0, so that a master of ours does not count it as an
    acknowledgement. The constructor raises OSError if it cannot connect. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        address: tuple[str, int],
        offset: int,
        *,
        clock: Clock,
        is_silent: bool = False,
        timeout_s: float = 5.0,
        connect: Connect = socket.create_connection,
    ) -> None:
        self._clock, self._reader = clock, FrameReader()
        self._socket = connect(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard_s = clock.monotonic_s()
        self.received_bytes = 0
        request = encode_report(offset)
        self._socket.sendall(request + encode_report(0) if is_silent else request)
        self._reported_s = clock.monotonic_s()

    def report(self, offset: int) -> None:
        """Send a report: an acknowledgement up to ``offset``. Raises OSError."""
        self._socket.sendall(encode_report(offset))
        self._reported_s = self._clock.monotonic_s()

    def report_again(self, offset: int) -> None:
        """Send a report if the last one is 5 s old. Raises OSError."""
        if self._clock.monotonic_s() - self._reported_s >= REPORT_AGAIN_S:
            self.report(offset)

    def receive(self, timeout_s: float, most_bytes: int = RECEIVE_BYTES) -> list[LogFrame]:
        """Return the frames that come within ``timeout_s``, often none.

        Raises ConnectionError when the master has closed, TimeoutError after 20 s of silence, and HAFrameError.
        """
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(most_bytes)
        except TimeoutError:
            if self._clock.monotonic_s() - self._heard_s >= SILENT_S:
                raise TimeoutError(f"the master was silent for {SILENT_S:g} s") from None
            return []
        if not data:
            hint = " before it sent anything; see its log, haAllowedSlaves, haTlsEnable, haAuthenticationEnabled"
            raise ConnectionResetError(f"the master closed the connection{'' if self.received_bytes else hint}")
        self._heard_s = self._clock.monotonic_s()
        self.received_bytes += len(data)
        return list(self._reader.feed(data))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        """Return this connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
