"""The verify report: a job that reads everything, and its findings with their remedies in the words of the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.store.jobs import JobSlot
from gantrymq.console.store.opened import OpenStore
from gantrymq.console.store.work import VerifyResult
from gantrymq.format.names import CONSUME_QUEUE
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.verify_report import next_steps, places_of, total_pairs, verdict


class VerifyPages:
    """The report, and the buttons that start and cancel the job."""

    def __init__(self, store: OpenStore, slot: JobSlot[VerifyResult]) -> None:
        self._store, self._slot = store, slot

    def routes(self) -> list[Route]:
        """The page, its polled part, and its two actions."""
        return [
            get("/verify", self.report),
            get("/verify/part", self.part),
            action("/verify/start", self.start, changes=False),
            action("/verify/cancel", self.cancel, changes=False),
        ]

    def report(self, request: PageRequest) -> Response:
        """The whole page. It needs no open view of the store."""
        return self._shown(request, "store/verify.html.j2")

    def part(self, request: PageRequest) -> Response:
        """The progress and the report, which htmx polls."""
        return self._shown(request, "store/verify_part.html.j2")

    def start(self, request: PageRequest) -> Response:
        """POST: start a verify, unless one is at work."""
        if self._slot.start():
            return request.done("/verify", "The verify has started.")
        return request.done("/verify", "A verify is at work already.", is_problem=True)

    def cancel(self, request: PageRequest) -> Response:
        """POST: end the verify that is at work."""
        self._slot.cancel()
        return request.done("/verify", "The verify is cancelled.")

    def _shown(self, request: PageRequest, template: str) -> Response:
        job = self._slot.view
        result = job.result if job is not None else None
        steps = []
        if result is not None and job is not None and not job.is_running:
            steps = next_steps(self._store.path, result.summary, result.groups.damaged, result.outlook)
        return request.page(
            template,
            job=job,
            result=result,
            steps=steps,
            groups=sorted(result.groups, key=lambda group: group.level is not Severity.DAMAGE)
            if result is not None
            else [],
            places_of=places_of,
            totals=total_pairs(result.summary, result.read_ms or 1.0) if result is not None else [],
            verdict=verdict(result.summary) if result is not None else "",
            store_path=str(self._store.path),
        )


def damage_of(result: VerifyResult | None) -> Mapping[str, str]:
    """One text for each damaged file, by its name in the store.

    A message without an entry is damage of its queue, not of the log file that the finding names.
    """
    damage: dict[str, str] = {}
    for group in result.groups if result is not None else ():
        if group.level is Severity.DAMAGE:
            first = group.first[0]
            locations = places_of(first)
            where = f" ({locations})" if locations else ""
            more = f" (the first of {group.count:,} findings)" if group.count > 1 else ""
            is_of_queue = group.kind is FindingKind.MESSAGE_WITHOUT_ENTRY
            name = Path(CONSUME_QUEUE, first.topic or "", str(first.queue_id)) if is_of_queue else group.path
            damage.setdefault(str(name), f"{group.kind.value}{where}: {first.text}{more}")
    return damage
