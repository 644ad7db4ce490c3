"""The overview of a store: its bounds, its checkpoint, and its topics, as they are after a recovery."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.view import View, get
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader


class OverviewPages:
    """The overview of one store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def routes(self) -> list[Route]:
        """The page."""
        return [get("/", self.overview)]

    def overview(self, view: View) -> Response:
        """The whole page. Only the last records of the store are read."""
        with closing(StoreReader.open(self._path, trusts_writer=True)) as reader:
            topics: dict[str, list[int]] = {}
            for queue in reader.consume_queues:
                row = topics.setdefault(queue.topic, [0, 0])
                row[0] += 1
                row[1] += queue.max_offset - queue.min_offset
            view.missing.extend((str(one.path), one.reason) for one in reader.problems)
            return view.page(
                "store/overview.html.j2",
                log=reader.log,
                page=reader.checkpoint,
                is_closed=reader.last_exit_ok,
                writer=lock_holder(StorePaths(self._path).lock),
                topics=sorted(topics.items()),
                bytes=max(reader.max_phy_offset - max(reader.min_phy_offset, 0), 0),
            )
