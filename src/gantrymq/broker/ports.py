"""Reserves ports before the broker listens: the store, which opens first, writes the port into every message.

Source: BrokerController.initializeRemotingServer.
"""

from __future__ import annotations

import socket
from types import TracebackType

from gantrymq.errors import RemotingError, system_reason
from gantrymq.logs import get_logger

_VIP_BELOW = 2
_TRIES = 20

log = get_logger("gantrymq.broker")


class ReservedPorts:
    """Sockets that are bound but do not listen: the broker's port, and the port of the VIP channel, two below.

    ``port`` is the requested port, or a free one for 0. The broker may then listen on the same port; other processes
    cannot. ``vip`` is a socket to listen on. It is None, with a warning, if another process has that port.

    Raises RemotingError if the broker's port is in use.
    """

    def __init__(self, host: str, port: int) -> None:
        self._own = bind_port(host, port, shared=True)
        self.vip = self._bound_below(host, shared=bool(port))
        for _ in range(0 if port else _TRIES):
            if self.vip is not None:
                break
            self._own.close()
            self._own = bind_port(host, port, shared=True)
            self.vip = self._bound_below(host, shared=False)
        if self.vip is None and self.port > _VIP_BELOW:
            log.warning("no VIP channel: its port is taken", port=self.port - _VIP_BELOW)

    @property
    def port(self) -> int:
        """The port that is reserved for the broker's own server."""
        bound: int = self._own.getsockname()[1]
        return bound

    def _bound_below(self, host: str, *, shared: bool) -> socket.socket | None:
        """A port that we choose must not be one that another process has bound without listening yet."""
        port = self.port - _VIP_BELOW
        if port <= 0:
            return None
        try:
            vip = bind_port(host, port, shared=shared)
        except RemotingError:
            return None
        vip.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # the broker binds it again if another object reserves
        return vip

    def __enter__(self) -> ReservedPorts:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the ports."""
        self.close()

    def close(self) -> None:
        """Close the reserving sockets. Servers that listen on the ports continue."""
        self._own.close()
        if self.vip is not None:
            self.vip.close()


def bind_port(host: str, port: int, *, shared: bool) -> socket.socket:
    """Bind a port without listening; 0 means a free one. Other sockets that share it may bind it too, and listen.

    Raises RemotingError if another socket listens on the port, or has it and does not share it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise RemotingError(f"cannot listen on {host}:{port}: {system_reason(error)}") from error
    return bound
