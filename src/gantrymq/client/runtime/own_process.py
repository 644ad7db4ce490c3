"""Checks that a client is used in the process and on the event loop where it was made.

A fork copies a client without its threads, and both processes then read the same sockets. On another event loop a
client would wait for futures that nothing completes.
"""

from __future__ import annotations

import asyncio
import os

from gantrymq.errors import MQClientError


class OwnProcess:
    """Remembers the process in which a ``kind`` of client was made. Thread rule: any thread."""

    def __init__(self, kind: str) -> None:
        self._kind, self._pid = kind, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is still the process that made the client, and not a fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise MQClientError in any other process."""
        if not self.is_here:
            raise MQClientError(f"the {self._kind} was made before a fork, in process {self._pid}: make one here")


class OwnLoop:
    """Remembers the event loop on which a ``kind`` of client is first used. Thread rule: any thread."""

    def __init__(self, kind: str) -> None:
        self._kind, self._process = kind, OwnProcess(kind)
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raise MQClientError on any other event loop, and in another process."""
        self._process.check()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise MQClientError(f"the {self._kind} belongs to the event loop where it was used first: make one here")
