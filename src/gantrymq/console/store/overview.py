"""The overview of a store: its state, its bounds, what is damaged as far as an opening shows it, and its topics."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.store.jobs import JobSlot
from gantrymq.console.store.looking import looking, state_of
from gantrymq.console.store.opened import OpenStore, Snapshot
from gantrymq.console.store.work import VerifyResult
from gantrymq.console.view import View, action, get

_MAX_TOPICS = 10
_MAX_PROBLEMS = 50


class OverviewPages:
    """The overview, and the request to read the store again."""

    def __init__(self, store: OpenStore, verify: JobSlot[VerifyResult]) -> None:
        self._store, self._verify = store, verify

    def routes(self) -> list[Route]:
        """The pages."""
        return [get("/", looking(self._store, self.overview)), action("/reopen", self.reopen, changes=False)]

    def overview(self, view: View, snapshot: Snapshot) -> Response:
        """The whole page."""
        summary = snapshot.summary
        found = (*summary.problems, *summary.notes)
        return view.page(
            "store/overview.html.j2",
            **state_of(self._store, snapshot),
            summary=summary,
            checkpoint=summary.checkpoint,
            first=snapshot.first,
            last=snapshot.last,
            largest=sorted(summary.topics, key=lambda one: (-one.messages, one.topic))[:_MAX_TOPICS],
            found=[(str(self._store.paths.name_of(path)), text) for path, text in found[:_MAX_PROBLEMS]],
            more_found=max(len(found) - _MAX_PROBLEMS, 0),
            verify=self._verify.view,
            took_ms=snapshot.took_ms,
        )

    def reopen(self, view: View) -> Response:
        """POST: open a new view of the store."""
        self._store.open_again()
        return view.done("/", "The store is read again.")
