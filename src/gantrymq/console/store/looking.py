"""Pages that need an open view of the store: while it is opened they show the progress, after a failure its reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from starlette.responses import Response

from gantrymq.console.page_request import Handler, PageRequest
from gantrymq.console.store.opened import OpenStore, Snapshot, StillOpeningError
from gantrymq.errors import GantrymqError

SnapshotHandler = Callable[[PageRequest, Snapshot], Response]


def looking(store: OpenStore, handler: SnapshotHandler) -> Handler:
    """A handler that calls ``handler`` with the newest view of the store."""

    def handle(request: PageRequest) -> Response:
        with ExitStack() as stack:
            try:
                snapshot = stack.enter_context(store.look())
            except StillOpeningError as error:
                return request.page("store/opening.html.j2", opening=error.opening, now_ms=store.clock.now_ms())
            except (GantrymqError, OSError) as error:
                return request.page("store/unreadable.html.j2", status=500, error=str(error))
            return handler(request, snapshot)

    return handle


def state_of(store: OpenStore, snapshot: Snapshot) -> dict[str, Any]:
    """The values with which the frame of every page describes the open view."""
    return {
        "opened_ms": snapshot.opened_ms,
        "state": snapshot.summary.state,
        "is_live": snapshot.summary.lock_holder is not None,
        "is_opening": store.opening is not None,
        "reopen_failure": str(store.failure) if store.failure is not None else "",
        "problems": len(snapshot.summary.problems),
    }
