"""Which process a client is of: a fork copies it without its threads, and both processes then read the same sockets."""

from __future__ import annotations

import os

from gantrymq.errors import MQClientError


class OwnProcess:
    """Remembers where a ``kind`` of client was made. Thread rule: any thread."""

    def __init__(self, kind: str) -> None:
        self._kind, self._pid = kind, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether nobody forked since."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise MQClientError in any other process."""
        if not self.is_here:
            raise MQClientError(f"the {self._kind} was made before a fork, in process {self._pid}: make one here")
