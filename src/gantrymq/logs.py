"""Where log lines go when we run inside somebody else's program: to Python's logging, not to stdout."""

from __future__ import annotations

import structlog

LOGGER = "gantrymq"


def log_through_logging() -> None:
    """Hand log lines to ``logging.getLogger("gantrymq")``, unless the program has configured structlog itself."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=lambda *names: structlog.stdlib.LoggerFactory()(LOGGER),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
