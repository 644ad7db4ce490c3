"""What a server calls to measure its requests. Without a meter it measures nothing.

Source: RemotingMetricsManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gantrymq.remoting.command import RemotingCommand


class RequestMeter(Protocol):
    """Measures the time between a request and its answer. Thread rule: the event loop's thread."""

    def received(self, requests: Sequence[RemotingCommand]) -> None:
        """Set ``received_s`` of requests that have arrived."""
        ...

    def answered(self, request: RemotingCommand, code: int, *, is_sent: bool) -> None:
        """Record the answer to a request, or to the requests of a run. ``code`` is the response code.

        ``is_sent`` is False if the connection was closed before.
        """
        ...
