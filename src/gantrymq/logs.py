"""Where log lines go: to Python's logging, or where the program has structlog bring its own."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from structlog.typing import EventDict

LOGGER = "gantrymq"
_FRAMES_BETWEEN = 4  # of structlog, between who logs and logging


def _with_caller(logger: object, method: str, text: Any) -> tuple[tuple[str], EventDict]:
    return (text,), {"stacklevel": _FRAMES_BETWEEN}


class _Logger:
    """Decides with each line, for a program may configure structlog, as the command line does, after it imported us.

    It never does so itself: the configuration is the program's, and holds for the program's own lines.
    """

    def __init__(self) -> None:
        self._configured = structlog.get_logger()
        self._through_logging = structlog.wrap_logger(
            logging.getLogger(LOGGER),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
                _with_caller,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
        )

    def __getattr__(self, method: str) -> Any:
        return getattr(self._configured if structlog.is_configured() else self._through_logging, method)


_LOGGER = _Logger()


def get_logger() -> Any:
    """The logger of this package: to ``logging.getLogger("gantrymq")``, unless the program has configured structlog."""
    return _LOGGER
