"""Runs a server on the command line: starts it, announces it on stdout, and stops it after SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from gantrymq.cli.service_manager import READY, STOPPING, notify
from gantrymq.model.texts import escape_controls

if TYPE_CHECKING:
    from structlog.typing import EventDict

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(Protocol):
    """A server that can be started and stopped."""

    async def start(self) -> None:
        """Return when it serves."""
        ...

    async def shutdown(self) -> None:
        """Return when everything is durable."""
        ...

    def announcement(self) -> Mapping[str, object]:
        """The fields of the line that announces that it serves, in order."""
        ...


async def _never() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


def serve_until_stopped(
    server: Server, *, json: bool, verbose: bool, failed: Callable[[], Coroutine[Any, Any, NoReturn]] = _never
) -> None:
    """Serve, and return after a clean shutdown.

    ``failed`` raises when the server can no longer serve. That error is raised after the shutdown. A second signal ends
    the process at once; the store then recovers at its next start.
    """
    from gantrymq.remoting.transport.server import new_event_loop

    _log_to_stderr(verbose=verbose)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(server, failed, json=json))


async def _serve(server: Server, failed: Callable[[], Coroutine[Any, Any, NoReturn]], *, json: bool) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def note() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, note)
    await server.start()
    gc.freeze()  # a server's objects stay, so no garbage collection needs to visit them
    try:
        _announce(server.announcement(), json=json)
        notify(READY)
        stopped, failure = loop.create_task(stop.wait()), loop.create_task(failed())
        await asyncio.wait((stopped, failure), return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            failure.result()
        failure.cancel()
        stopped.cancel()
    finally:
        notify(STOPPING)
        await server.shutdown()


def _announce(fields: Mapping[str, object], *, json: bool) -> None:
    if json:
        from gantrymq.cli.json_lines import json_line

        line = json_line({"ready": True, **fields}).decode().rstrip("\n")
    else:
        parts = [f"{name} {value}" for name, value in fields.items() if value is not None]
        line = escape_controls(f"ready: {', '.join(parts)} (Ctrl-C stops it)")
    print(line, flush=True)


def _log_to_stderr(*, verbose: bool) -> None:
    """Log to stderr, in colour only on a terminal. stdout is reserved for the announcement."""
    import logging

    import structlog

    structlog.configure(
        processors=[
            _harmless,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("%Y-%m-%d %H:%M:%S", utc=False),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if verbose else logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    _log_store_to_stderr(verbose=verbose)


def _log_store_to_stderr(*, verbose: bool) -> None:
    """Log the lines of the store, which uses Python's logging."""
    import logging

    class Lines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            record.level = record.levelname.lower()  # as in the servers' lines
            return escape_controls(super().format(record))

    of_store = logging.getLogger("gantrymq.store")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines("%(asctime)s [%(level)-9s] %(message)s", "%Y-%m-%d %H:%M:%S"))
    of_store.addHandler(handler)
    of_store.setLevel(logging.INFO if verbose else logging.WARNING)
    of_store.propagate = False


def _harmless(logger: Any, method: str, event: EventDict) -> EventDict:
    """Escape control characters: some names in the log are chosen by remote clients."""
    return {name: escape_controls(value) if isinstance(value, str) else value for name, value in event.items()}
