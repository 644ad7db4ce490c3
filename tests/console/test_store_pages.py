"""The pages of a store directory: a healthy, a damaged and an odd store, and that nothing is written."""

from __future__ import annotations

import html
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import console_stores
import httpx
import pytest
from console_stores import DEAD_LETTERS, HTML

import runbook_stores
from bad_disk import break_reads
from gantrymq.cli.main import exit_code
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.console.security import Access
from gantrymq.console.server import ConsoleServer
from gantrymq.console.store.site import store_site

PAGES = ("/", "/topics", "/groups", "/messages", "/dlq", "/pending", "/map", "/verify")


class Browser(httpx.Client):
    """Loads a page again that asks for it: while the store is opened, its files listed, or its index recovered."""

    def get(self, url: str, **options: Any) -> httpx.Response:  # type: ignore[override]
        deadline = time.monotonic() + 60
        while 'http-equiv="refresh"' in (answer := super().get(url, **options)).text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return answer


@contextmanager
def browsing(path: Path) -> Iterator[httpx.Client]:
    """A console of the store at ``path``."""
    loop = LoopThread("console")
    server = ConsoleServer(store_site(path), Access())
    try:
        loop.run(server.start())
        with Browser(base_url=server.url, timeout=60, follow_redirects=True) as client:
            client.get("/")
            yield client
    finally:
        loop.close(server.shutdown())


def tree(path: Path) -> dict[Path, tuple[int, bytes]]:
    return {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in path.rglob("*") if one.is_file()}


def text_of(page: str) -> str:
    """What a reader sees."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def press(client: httpx.Client, page: str, path: str) -> None:
    """Press the button of a form."""
    found = re.search(r'name="form_token" value="([^"]+)"', client.get(page).text)
    assert found is not None
    answer = client.post(path, data={"form_token": found[1]})
    assert answer.status_code == 200


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "rich"
    console_stores.make(path, time.time_ns() // 1_000_000, messages=120)
    return path


@pytest.fixture(scope="module")
def client(rich: Path) -> Iterator[httpx.Client]:
    with browsing(rich) as client:
        yield client


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    runbook_stores.make(path)
    return path


@pytest.fixture
def healthy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "store"))


def test_every_page_is_whole_and_writes_nothing(client: httpx.Client, rich: Path) -> None:
    before = tree(rich)
    for page in PAGES:
        answer = client.get(page)
        assert answer.status_code == 200, page
        assert "<h1>" in answer.text
        assert HTML not in answer.text
        assert not re.search(r"<style|\sstyle=|\son\w+=", answer.text)
        ids = re.findall(r'\sid="([^"]*)"', answer.text)
        assert len(ids) == len(set(ids)), page
    assert tree(rich) == before


def test_topics_lead_to_queues_and_messages(client: httpx.Client) -> None:
    assert "orders" in text_of(client.get("/topics?q=ORD").text)
    assert "payments" not in text_of(client.get("/topics?q=ORD").text).split("Messages")[-1]
    topic = text_of(client.get("/topics/orders").text)
    assert "billing" in topic
    assert client.get("/topics/nothing").status_code == 404
    rows = client.get("/messages?by=queue&topic=orders&queue=0&offset=0").text
    assert "order-4 " in text_of(rows)
    place = re.search(r'href="(/messages/\d+)"', rows)
    assert place is not None
    message = text_of(client.get(place[1]).text)
    assert "order-4" in message
    assert '"currency": "EUR"' in message  # indented JSON
    body = client.get(f"{place[1]}/body")
    assert body.content.startswith(b'{"order":4')
    assert "attachment" in body.headers["content-disposition"]


def test_groups_show_their_lag(client: httpx.Client) -> None:
    assert "reporting" in text_of(client.get("/groups").text)
    group = text_of(client.get("/groups/billing").text)
    assert "past the end of the queue" in group
    assert "the store has no such queue" in text_of(client.get("/groups/reporting").text)
    assert client.get("/groups/nobody").status_code == 404
    assert "billing" in text_of(client.get("/dlq").text)
    assert "12" in text_of(client.get(f"/topics/{DEAD_LETTERS.replace('%', '%25')}").text)


def test_messages_are_found_by_key_time_and_place(client: httpx.Client) -> None:
    def found(query: str) -> str:
        return text_of(client.get(f"/messages?{query}").text)

    assert "order-7 " in found("by=key&topic=orders&key=order-7")
    assert "Nothing found" in found("by=key&topic=orders&key=order-700")
    assert "no topic bills" in found("by=key&topic=bills&key=order-7")
    assert "order-1 " in found("by=time&topic=orders&time=2020-01-01&queue=1")
    assert "nothing was stored then or later" in found("by=time&topic=orders&time=2050-01-01")
    assert "order-0" in found("by=place&place=0")
    assert "No message begins at offset 1 " in found("by=place&place=1")
    assert "ends at offset" in found("by=queue&topic=orders&queue=0&offset=9999")
    for query in (
        "by=place&place=nonsense",
        "by=queue&topic=orders&queue=x",
        "by=luck",
        "by=time&topic=orders&time=soon",
    ):
        assert client.get(f"/messages?{query}").status_code == 400, query
    assert client.get("/messages?by=queue&topic=orders&queue=77").status_code == 404
    assert client.get("/messages/1").status_code == 404
    assert client.get("/messages/99999999999999999999").status_code == 404


def test_odd_texts_are_escaped_and_visible(client: httpx.Client) -> None:
    rows = client.get("/messages?by=queue&topic=odd-names&queue=0&offset=0").text
    assert "⟨ESC⟩[31m" in rows
    assert "⟨U+202E⟩reversed" in rows
    assert HTML not in rows
    assert html.escape(HTML, quote=False) in html.unescape(rows).replace(HTML, html.escape(HTML, quote=False))
    binary = re.findall(r'href="(/messages/\d+)"', rows)[-1]
    assert "00000010 10 11 12 13" in text_of(client.get(binary).text)


def test_pending_messages_are_counted_and_drawn(client: httpx.Client) -> None:
    client.get("/pending")
    deadline = time.monotonic() + 60
    while "By kind, topic and group" not in (page := client.get("/pending/part").text):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    seen = text_of(page)
    assert "87 pending messages" in seen.replace("pending messages 87", "87 pending messages")
    assert {"kind-delay", "kind-timer", "kind-pop"} <= set(re.findall(r'<rect class="([^"]+)"', page))


def test_verify_runs_beside_pages_and_its_findings_reach_map(healthy: Path) -> None:
    runbook_stores.flip_body(healthy)
    runbook_stores.remove_queue(healthy)
    with browsing(healthy) as client:
        assert "no verify has ended" in text_of(client.get("/map").text).lower()
        press(client, "/verify", "/verify/start")
        deadline = time.monotonic() + 60
        while "What was read" not in (page := client.get("/verify/part").text):
            assert client.get("/").status_code == 200
            assert time.monotonic() < deadline
            time.sleep(0.05)
        seen = text_of(page)
        assert "2 findings" in seen
        assert "record-crc" in seen
        assert "gantrymq store salvage" in seen
        assert f"gantrymq store salvage {healthy} OUT keeps 999 messages" in seen
        assert 'class="cell is-damaged' in client.get("/map").text
        assert "consumequeue/orders/2, damaged" in client.get("/map").text
        assert "commitlog/00000000000000000000, flushed" in client.get("/map").text
        file = text_of(client.get("/map/file", params={"name": "commitlog/00000000000000065536"}).text)
        assert "record-crc" in file
        assert client.get("/map/file", params={"name": "../../etc/passwd"}).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (runbook_stores.remove_middle_file, "commitlog/00000000000000065536"),
        (runbook_stores.remove_log, "is its disk mounted"),
        (runbook_stores.remove_topics, "holds no topics.json"),
    ],
)
def test_missing_part_is_named_on_overview(healthy: Path, damage: object, text: str) -> None:
    damage(healthy)  # type: ignore[operator]
    with browsing(healthy) as client:
        assert text in text_of(client.get("/").text)
        assert client.get("/topics/orders").status_code == 200


def test_store_without_index_names_remedy(healthy: Path) -> None:
    shutil.rmtree(healthy / "index")
    with browsing(healthy) as client:
        page = text_of(client.get("/messages?by=key&topic=orders&key=order-7").text)
        assert "has no index file" in page
        assert f"gantrymq store rebuild --index {healthy}" in page


def test_unreadable_block_is_named(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil = break_reads(monkeypatch)
    spoil(healthy / "commitlog" / "00000000000000000000", 0, 4_096)
    with browsing(healthy) as client:
        rows = text_of(client.get("/messages?by=queue&topic=orders&queue=0&offset=0").text)
        assert "no readable record is there" in rows
        assert "order-40 " in rows
        overview = text_of(client.get("/").text)
        assert "commitlog/00000000000000000000" in overview
        assert "Input/output error" in overview
        assert client.get("/messages/0").status_code == 404


def test_names_with_invalid_utf_8_are_shown(healthy: Path) -> None:
    for name in (b"consumequeue/\xff\x1b[31m/0", b"commitlog/\xff<script>"):
        os.makedirs(os.path.join(os.fsencode(healthy), name))
    queue = os.path.join(os.fsencode(healthy), b"consumequeue/\xff\x1b[31m/0")
    Path(os.fsdecode(queue), "00000000000000000000").write_bytes(bytes(4_000))
    with browsing(healthy) as client:
        assert "⟨U+DCFF⟩⟨ESC⟩[31m" in text_of(client.get("/topics").text)
        assert "commitlog/⟨U+DCFF⟩<script>" in text_of(client.get("/map").text)
        assert client.get("/messages").status_code == 200


def test_unopenable_store_has_map_and_verify(healthy: Path) -> None:
    (healthy / "salvage.unfinished").touch()
    with browsing(healthy) as client:
        answer = client.get("/")
        assert answer.status_code == 500
        assert "unfinished result of an interrupted salvage" in text_of(answer.text)
        assert "salvage.unfinished" in text_of(client.get("/map").text)
        assert client.get("/verify").status_code == 200


@pytest.mark.slow
def test_changed_store_is_read_again(healthy: Path) -> None:
    with browsing(healthy) as client:
        assert "1,000" in text_of(client.get("/topics/orders").text)
        shutil.rmtree(healthy / "consumequeue" / "orders" / "2")
        press(client, "/", "/reopen")
        deadline = time.monotonic() + 60
        while "750" not in text_of(client.get("/topics/orders").text):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_console_of_directory_without_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["console", str(tmp_path)]) == 3
    assert "is not a RocketMQ store" in capsys.readouterr().err
    assert exit_code(["console", "-n", "127.0.0.1:1", "--set", "fileReservedTime=1"]) == 2
    assert "a cluster has its own settings" in capsys.readouterr().err
