"""A port that is ours before we listen on it: the store writes it into every message, and is opened first."""

from __future__ import annotations

import socket
from types import TracebackType

from gantrymq.errors import RemotingError


class ReservedPort:
    """A bound socket that does not listen; whoever listens then on the same port may, all others take another.

    ``port`` is the one asked for, or a free one in place of 0. Raises RemotingError where it cannot be had.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise RemotingError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> ReservedPort:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        self._socket.close()
