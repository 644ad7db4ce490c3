"""The tables of topics: what each has, how far it is behind, and what is dead or missing.

A table is read at each request. One that cannot be read is a line of the list.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.page_request import NavigationEntry, PageRequest, Site, get
from gantrymq.errors import GantrymqError
from gantrymq.tables.columns import AUDIT, DEAD
from gantrymq.tables.local.target import TableTarget
from gantrymq.tables.status import SettingsOf, TableStatus, first_rows, read_status

SHOWN = 50
_SHOWN_QUEUES = 200
_OF_DEAD = ["broker", "topic", "queue_id", "queue_offset", "reason"]
_OF_AUDIT = ["broker", "topic", "queue_id", "from_offset", "to_offset", "reason"]


class TablePages:
    """The list of the tables, and a page about each."""

    def __init__(self, tables: Sequence[TableTarget], settings_of: SettingsOf) -> None:
        """``tables`` are those that the console was started with."""
        self._tables: Mapping[str, TableTarget] = {target.table: target for target in tables}
        self._settings_of = settings_of

    def routes(self) -> list[Route]:
        """The routes of the pages."""
        return [get("/tables", self.tables), get("/tables/{name:path}", self.table)]

    def tables(self, request: PageRequest) -> Response:
        """All tables."""
        rows: list[tuple[str, TableStatus | None, str]] = []
        for name, target in self._tables.items():
            try:
                rows.append((name, read_status(target, self._settings_of), ""))
            except (GantrymqError, OSError) as error:
                rows.append((name, None, str(error)))
        return request.page("tables/tables.html.j2", rows=rows)

    def table(self, request: PageRequest) -> Response:
        """One table: its queues, its last commits, dead rows and the account."""
        name = request.name()
        target = self._tables.get(name)
        if target is None:
            raise HTTPException(404, f"The console was not started with --table {name}.")
        status = read_status(target, self._settings_of)
        queues = [
            (broker, topic, queue_id, offset)
            for broker, topics in status.positions.items()
            for topic, of_topic in topics.items()
            for queue_id, offset in of_topic.items()
        ]
        return request.page(
            "tables/table.html.j2",
            name=name,
            found=status,
            queues=queues[:_SHOWN_QUEUES],
            queue_count=len(queues),
            dead=first_rows(target, DEAD, _OF_DEAD, SHOWN),
            audit=first_rows(target, AUDIT, _OF_AUDIT, SHOWN),
            shown=SHOWN,
        )


def with_tables(site: Site, tables: Sequence[TableTarget], settings_of: SettingsOf) -> Site:
    """The site with pages about these tables."""
    pages = TablePages(tables, settings_of)
    navigation = (*site.navigation, NavigationEntry("/tables", "Tables"))
    return replace(site, navigation=navigation, routes=[*site.routes, *pages.routes()])
