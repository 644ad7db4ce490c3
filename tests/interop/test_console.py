"""The console at the real cluster: every page, and every change."""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from demo_cluster import DemoCluster, demo_cluster
from pages import crawl, form_of, rows_of, shown

from gantrymq import Message, Producer, ReceivedMessage, SimpleConsumer
from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.client.settings import ClientConfig
from gantrymq.console.cluster.site import cluster_site
from gantrymq.console.security import Access
from gantrymq.console.server import ConsoleServer

from .java_cluster import JavaCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(java: None) -> Iterator[DemoCluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gantrymq-console-")))
        cluster = stack.enter_context(JavaCluster(folder / "store", {"timerWheelEnable": True}))
        yield stack.enter_context(demo_cluster(cluster.namesrv, is_large=False))


@pytest.fixture(scope="module")
def page(demo: DemoCluster) -> Iterator[httpx.Client]:
    loop = LoopThread("console")
    server = ConsoleServer(cluster_site(ClientConfig(demo.namesrv)), Access(allow_changes=True))
    try:
        loop.run(server.start())
        with httpx.Client(base_url=server.url, timeout=60) as client:
            yield client
    finally:
        loop.close(server.shutdown())


def test_every_page_shows_real_cluster(page: httpx.Client) -> None:
    texts = crawl(page)
    assert len(texts) > 20
    # Nothing is missing in a cluster that is whole.
    assert not [path for path, text in texts.items() if "missing on this page" in text]


def test_pages_show_state_of_real_cluster(page: httpx.Client, demo: DemoCluster) -> None:
    assert "paid || sent" in shown(page.get("/groups/invoices"))
    assert "No consumer of the group is connected." in shown(page.get("/groups/billing"))
    assert "shop" in shown(page.get("/clients"))
    for query in (
        {"by": "key", "key": "order-4711"},
        {"by": "id", "id": demo.ids["offset"]},
        {"by": "topic", "most": "200"},
    ):
        assert demo.ids["order"] in shown(page.get("/messages", params={"topic": "orders", **query})), query
    answer = page.get("/pending")
    rows = rows_of(answer)
    for level in (["5", "1m", "broker-a", "2"], ["9", "5m", "broker-a", "3"], ["18", "2h", "broker-a", "1"]):
        assert level in rows
    assert [row[1] for row in rows if len(row) == 6].count("timer") == 3
    assert "producer group checkout" in shown(answer)


def test_console_changes_topics_of_real_cluster(page: httpx.Client, demo: DemoCluster) -> None:
    form = form_of(page.get("/topics"), "/topics/create")
    made = page.post("/topics/create", data={**form, "topic": "life", "read": "2", "write": "2", "type": "FIFO"})
    assert "life was created at broker-a." in shown(page.get(made.headers["location"]))
    change = form_of(page.get("/topics/life"), "/topics/change")
    changed = page.post("/topics/change", data={**change, "read": "5", "write": "3", "perm": "4"})
    assert "life was changed at broker-a." in shown(page.get(changed.headers["location"]))
    message = {"body": "by hand", "tag": "t"}
    sent = page.post("/send", data={**form_of(page.get("/send?topic=audit-log"), "/send"), **message})
    assert "is stored in queue 0 at broker-a." in shown(page.get(sent.headers["location"]))
    delete = form_of(page.get("/delete-topic?topic=life"), "/topics/delete")
    assert page.post("/topics/delete", data={**delete, "again": "life"}).status_code == 303
    for to, offset in (("earliest", ""), ("offset", "3"), ("latest", "")):
        preview = page.get("/reset", params={"group": "billing", "topic": "orders", "to": to, "offset": offset})
        moved = page.post("/reset", data=form_of(preview, "/reset"))
        assert "billing was reset in 4 of 4 queues of orders." in shown(page.get(moved.headers["location"])), to
        with AdminClient(demo.namesrv) as admin:
            stats = admin.consume_stats("billing", "orders").values()
        wanted = [{"earliest": 0, "offset": 3}.get(to, one.broker_offset) for one in stats]
        assert [one.consumer_offset for one in stats] == wanted
    letters = re.findall(r'name="letter" value="([^"]*)"', page.get("/dlq/mailer").text)
    asked = page.get("/resend", params={"group": "mailer", "letter": letters[:1]})
    sent = page.post("/resend", data={**form_of(asked, "/resend"), "to": "topic"})
    assert "1 of 1 dead letters were resent." in shown(page.get(sent.headers["location"]))


def test_console_changes_groups_and_settings_of_real_cluster(page: httpx.Client, demo: DemoCluster) -> None:
    form = form_of(page.get("/groups"), "/groups/create")
    made = page.post("/groups/create", data={**form, "group": "crew", "retries": "3"})
    assert "crew was created at broker-a." in shown(page.get(made.headers["location"]))
    change = form_of(page.get("/groups/crew"), "/groups/change")
    changed = page.post("/groups/change", data={**change, "retries": "5"})
    assert "crew was changed at broker-a." in shown(page.get(changed.headers["location"]))
    delete = form_of(page.get("/delete-group?group=crew"), "/groups/delete")
    gone = page.post("/groups/delete", data={**delete, "again": "crew"})
    assert "crew was deleted at broker-a." in shown(page.get(gone.headers["location"]))
    setting = form_of(page.get("/broker-setting?broker=broker-a&key=fileReservedTime"), "/broker-setting")
    done = page.post("/broker-setting", data={**setting, "value": "49"})
    assert "fileReservedTime of broker-a is 49 now" in shown(page.get(done.headers["location"]))
    for task in ("wipe", "add", "expired-logs", "expired-queues", "unused-topics"):
        tasks = form_of(page.get("/broker-tasks?broker=broker-a"), "/broker-tasks")
        done = page.post("/broker-tasks", data={**tasks, "task": task})
        assert "broker-a" in shown(page.get(done.headers["location"])), task


def test_console_delivers_exports_and_pops_messages_of_real_cluster(page: httpx.Client, demo: DemoCluster) -> None:
    asked = page.get("/deliver", params={"topic": "orders", "id": demo.ids["order"], "group": "invoices"})
    client = re.search(r'<option value="([^"]*)"', asked.text)
    assert client
    done = page.post("/deliver", data={**form_of(asked, "/deliver"), "client": html.unescape(client[1])})
    assert "answered CR_SUCCESS after" in shown(page.get(done.headers["location"]))
    assert '"body":"{\\"payment\\": 0}"' in page.get("/dlq-export/mailer").text
    with AdminClient(demo.namesrv) as admin:
        admin.create_topic("popped", read_queue_nums=1, write_queue_nums=1)
    with Producer(demo.namesrv) as producer, SimpleConsumer(demo.namesrv, consumer_group="poppers") as consumer:
        for number in range(3):
            producer.send(Message("popped", b"%d" % number))
        consumer.subscribe("popped")
        got = list[ReceivedMessage]()
        while len(got) < 3:
            got += consumer.receive(invisible_ms=600_000)
        consumer.ack(got[0])
        assert ["poppers", "popped", "2"] in rows_of(page.get("/pending"))
