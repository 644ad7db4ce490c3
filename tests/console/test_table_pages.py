"""The console's pages about tables of topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pages import rows_of, shown

from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.console.security import Access
from gantrymq.console.server import ConsoleServer
from gantrymq.console.store.site import store_site
from gantrymq.console.tables.pages import with_tables
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.options import LandOptions
from tables.landing_cases import Lake, land, line, put


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table with three rows, a dead one, and one message that has come since."""
    store, lake = tmp_path / "broker-a" / "store", Lake(tmp_path / "lake", TableFormat.DELTA)
    put(store, [line(order=1), line(order=2), line(order="<b>x"), line(order=4)])
    schema = tmp_path / "orders.ddl"
    schema.write_text("order bigint")
    land(lake, store, LandOptions(("orders",), body="json", schema=str(schema), sources=(str(store),)))
    put(store, [line(order=5)])
    return lake


@pytest.fixture
def browser(lake: Lake, tmp_path: Path) -> Iterator[httpx.Client]:
    loop = LoopThread("console")
    targets = [lake.target, TableTarget(str(tmp_path / "none"))]
    site = with_tables(store_site(tmp_path / "broker-a" / "store"), targets, lambda sources: {})
    server = ConsoleServer(site, Access())
    try:
        loop.run(server.start())
        with httpx.Client(base_url=server.url, timeout=60, follow_redirects=True) as client:
            yield client
    finally:
        loop.close(server.shutdown())


def test_list_of_tables_shows_counts_lag_and_one_that_cannot_be_read(browser: httpx.Client, lake: Lake) -> None:
    answer = browser.get("/tables")
    _, table, other = rows_of(answer)
    assert table[:6] == [lake.table, "3", "1", "0", "1", "1"]
    assert "does not exist" in other[1]
    assert "Tables" in shown(browser.get("/tables"))


def test_page_of_table_shows_dead_rows_positions_and_commits(browser: httpx.Client, lake: Lake) -> None:
    answer = browser.get(f"/tables/{lake.table}")
    rows = rows_of(answer)
    assert ["broker-a", "orders", "0", "2", "order: expected BIGINT, got text"] in rows
    assert ["broker-a", "orders", "0", "4"] in rows
    assert [row[2:] for row in rows if len(row) == 5 and row[0] == "2"] == [["3", "1", "0"]]
    assert f"gantrymq table retry {lake.table}" in shown(answer)


def test_table_that_was_not_given_is_not_found(browser: httpx.Client, tmp_path: Path) -> None:
    assert browser.get(f"/tables/{tmp_path}/store").status_code == 404
