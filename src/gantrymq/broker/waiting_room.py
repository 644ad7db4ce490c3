"""Room for what waits: so many requests, so many bytes. Who finds none is refused at once, so that memory does not grow
with the load.

Thread rule: the event loop's thread.
"""

from __future__ import annotations

from gantrymq.config.broker_settings import LiveConfig

MAX_WAITING_BYTES = 128 << 20


class WaitingRoom:
    """Has sendThreadPoolQueueCapacity places. Whoever entered leaves with the same numbers."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self.requests = self.size_bytes = 0

    def enter(self, requests: int, size_bytes: int) -> bool:
        """Take that much room; False where there is not as much."""
        if (
            self.requests + requests > self._config.broker.send_thread_pool_queue_capacity
            or self.size_bytes + size_bytes > MAX_WAITING_BYTES
        ):
            return False
        self.requests += requests
        self.size_bytes += size_bytes
        return True

    def leave(self, requests: int, size_bytes: int) -> None:
        """Give it back."""
        self.requests -= requests
        self.size_bytes -= size_bytes
