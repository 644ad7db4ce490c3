"""Log lines go to Python's logging, or to structlog if the program has configured it.

Each area has its own logger below ``gantrymq``: ``gantrymq.client.producer``, ``gantrymq.client.consumer``,
``gantrymq.broker``, …
"""

from __future__ import annotations

import logging
from typing import Any

import structlog
from structlog.typing import EventDict

LOGGER = "gantrymq"
_FRAMES_BETWEEN = 4  # structlog's frames between the caller and logging
_AS_TEXT = structlog.processors.KeyValueRenderer(key_order=["event"])


def _for_logging(logger: Any, method: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """The line as text. An exception stays an object, so that the program's handlers can format it."""
    error = event.pop("exc_info", None)
    return (str(_AS_TEXT(logger, method, event)),), {"stacklevel": _FRAMES_BETWEEN, "exc_info": error}


class _Logger:
    """Chooses the target for each line, because a program may configure structlog after it imported us.

    It never configures structlog itself: the configuration belongs to the program.
    """

    def __init__(self, area: str) -> None:
        self._configured = structlog.get_logger(area)
        self._through_logging = structlog.wrap_logger(
            logging.getLogger(area),
            processors=[structlog.stdlib.filter_by_level, _for_logging],
            wrapper_class=structlog.stdlib.BoundLogger,
        )

    def __getattr__(self, method: str) -> Any:
        return getattr(self._configured if structlog.is_configured() else self._through_logging, method)


def get_logger(area: str = LOGGER) -> Any:
    """The logger of an area. It writes to ``logging.getLogger(area)`` unless the program has configured structlog."""
    return _Logger(area)
