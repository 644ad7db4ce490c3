"""The overview of a store: its state, its bounds, what is damaged as far as an opening shows it, and its topics."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.store.jobs import JobSlot
from gantrymq.console.store.looking import looking, state_of
from gantrymq.console.store.opened import OpenStore, Snapshot
from gantrymq.console.store.work import VerifyResult

_MAX_TOPICS = 10
_MAX_PROBLEMS = 50


class StoreOverviewPages:
    """The overview, and the request to read the store again."""

    def __init__(self, store: OpenStore, verify: JobSlot[VerifyResult]) -> None:
        self._store, self._verify = store, verify

    def routes(self) -> list[Route]:
        """The routes of the pages."""
        return [get("/", looking(self._store, self.overview)), action("/reopen", self.reopen, changes=False)]

    def overview(self, request: PageRequest, snapshot: Snapshot) -> Response:
        """The page of the overview."""
        summary = snapshot.summary
        texts = (*summary.problems, *summary.notes)
        return request.page(
            "store/overview.html.j2",
            **state_of(self._store, snapshot),
            summary=summary,
            checkpoint=summary.checkpoint,
            first=snapshot.first,
            last=snapshot.last,
            largest=sorted(summary.topics, key=lambda topic: (-topic.messages, topic.topic))[:_MAX_TOPICS],
            found=[(str(self._store.paths.name_of(path)), text) for path, text in texts[:_MAX_PROBLEMS]],
            more_found=max(len(texts) - _MAX_PROBLEMS, 0),
            verify=self._verify.view,
            took_ms=snapshot.took_ms,
        )

    def reopen(self, request: PageRequest) -> Response:
        """POST: open a new view of the store."""
        self._store.open_again()
        return request.done("/", "The store is read again.")
