"""Log lines go to Python's logging, or to structlog if the program has configured it.

Each area has its own logger below ``gantrymq``: ``gantrymq.client.producer``, ``gantrymq.client.consumer``,
``gantrymq.broker``, …
"""

from __future__ import annotations

import logging
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from structlog.typing import EventDict

LOGGER = "gantrymq"
_FRAMES_BETWEEN = 4  # structlog's frames between the caller and logging
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class _Logger:
    """Chooses the target for each line, because a program may configure structlog after it imported us.

    It never configures structlog itself: the configuration belongs to the program. structlog is imported for the first
    line that is written, because its import takes 40 ms, and 200 ms where it finds rich.
    """

    def __init__(self, area: str) -> None:
        self._area = area

    def __getattr__(self, method: str) -> Any:
        # Without structlog in memory, no program has configured it, so the level of logging decides.
        level = None if "structlog" in sys.modules else _LEVELS.get(method)
        if level is not None and not logging.getLogger(self._area).isEnabledFor(level):
            return _ignore

        import structlog

        return getattr(self._configured if structlog.is_configured() else self._through_logging, method)

    @cached_property
    def _configured(self) -> Any:
        import structlog

        return structlog.get_logger(self._area)

    @cached_property
    def _through_logging(self) -> Any:
        import structlog

        as_text = structlog.processors.KeyValueRenderer(key_order=["event"])

        def for_logging(logger: Any, method: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
            """The line as text. An exception stays an object, so that the program's handlers can format it."""
            error = event.pop("exc_info", None)
            return (str(as_text(logger, method, event)),), {"stacklevel": _FRAMES_BETWEEN, "exc_info": error}

        return structlog.wrap_logger(
            logging.getLogger(self._area),
            processors=[structlog.stdlib.filter_by_level, for_logging],
            wrapper_class=structlog.stdlib.BoundLogger,
        )


def _ignore(event: str, **values: object) -> None:
    """Write nothing."""


def get_logger(area: str = LOGGER) -> Any:
    """The logger of an area. It writes to ``logging.getLogger(area)`` unless the program has configured structlog."""
    return _Logger(area)
