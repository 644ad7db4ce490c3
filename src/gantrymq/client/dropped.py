"""Clients that are dropped without close(): their thread and connections end all the same, and it is said."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from weakref import finalize

from gantrymq.client.loop_thread import LoopThread
from gantrymq.logs import get_logger

_AT_EXIT_SECONDS = 5.0

Owner = TypeVar("Owner")

log = get_logger("gantrymq.client")


def close_when_dropped(
    owner: Owner,
    loop: LoopThread,
    last: Callable[[], Coroutine[Any, Any, None]],
    then: Callable[[], None] | None = None,
    *,
    at_exit: bool = True,
) -> finalize[..., Owner]:
    """Once ``owner`` is collected, let ``last`` run in the thread and end it; ``then`` is called at the end.

    Neither may lead to ``owner``. A line of the log and a ResourceWarning name what was not closed. With ``at_exit``
    the end of the program closes it as well, and waits a few seconds for that: what was sent leaves, what was consumed
    is committed.
    """
    finalizer = finalize(owner, _dropped, type(owner).__name__, loop, last, then)
    finalizer.atexit = at_exit
    return finalizer


def _dropped(
    kind: str,
    loop: LoopThread,
    last: Callable[[], Coroutine[Any, Any, None]],
    then: Callable[[], None] | None,
) -> None:
    if loop.abandon(last, then):
        _say(kind)
        if not threading.main_thread().is_alive():
            loop.wait_ended(_AT_EXIT_SECONDS)


def end_when_dropped(owner: Owner, last: Callable[[], Coroutine[Any, Any, None]]) -> finalize[..., Owner]:
    """The same for one on the running event loop: once ``owner`` is collected ``last`` runs there as a task."""
    finalizer = finalize(owner, _ended, type(owner).__name__, asyncio.get_running_loop(), last)
    finalizer.atexit = False
    return finalizer


def _ended(kind: str, loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and all that it had with it
        loop.call_soon_threadsafe(_begin, loop, last)
    _say(kind)


def _begin(loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.create_task(last())  # what it waits for has a time limit, and holds it


def _say(kind: str) -> None:
    log.warning("a client was dropped without close(): it is closed now", client=kind)
    warnings.warn(f"{kind} was dropped without close(); use `with`, or call close()", ResourceWarning, stacklevel=3)
