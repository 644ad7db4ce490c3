"""The pages for a live cluster: what they show, what they escape, and what they change."""

from __future__ import annotations

import html
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from demo_cluster import EVIL_KEY, HTML, KEY, ODD_TOPIC, DemoCluster
from pages import crawl, form_of, rows_of, shown

from gantrymq import EmbeddedBroker, Message, Producer, ReceivedMessage, SimpleConsumer
from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.client.settings import ClientConfig
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.console.cluster.site import cluster_site
from gantrymq.console.security import Access
from gantrymq.console.server import ConsoleServer
from gantrymq.embedded.standalone import Extras, Standalone
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig


def test_every_page_renders_and_escapes_text(page: httpx.Client) -> None:
    assert len(crawl(page)) > 20


def test_topics_are_listed_by_kind(page: httpx.Client) -> None:
    normal = shown(page.get("/topics"))
    assert "orders" in normal
    assert ODD_TOPIC in normal
    assert "%DLQ%mailer" not in normal
    assert "broker-a " in normal  # a column, not a topic
    assert "RMQ_SYS_TRACE_TOPIC" in shown(page.get("/topics?kind=system"))
    filtered = page.get("/topics", params={"q": "PAY"}).text
    assert "payments" in filtered
    assert "audit-log" not in filtered
    assert page.get("/topics?kind=x").status_code == 400


def test_page_of_topic_with_special_characters_opens(page: httpx.Client) -> None:
    text = shown(page.get(f"/topics/{quote(ODD_TOPIC, safe='')}"))
    assert ODD_TOPIC in text
    assert "1  messages in the queues" in re.sub(r"\s*\n\s*", " ", text) or "messages in the queues" in text
    gone = shown(page.get("/topics/no-such-topic"), 404)
    assert "There is no topic no-such-topic." in gone


def test_group_page_shows_lag_members_and_subscriptions(page: httpx.Client) -> None:
    text = shown(page.get("/groups/invoices"))
    assert "paid || sent" in text
    assert "PYTHON" in text
    assert "clustering" in text
    behind = shown(page.get("/groups/billing"))
    assert "No consumer of the group is connected." in behind
    assert len(re.findall(r"orders\s+broker-a", behind)) == 4
    assert "There is no group nobody." in shown(page.get("/groups/nobody"), 404)
    listed = shown(page.get("/groups"))
    assert "billing" in listed
    assert "TOOLS_CONSUMER" not in listed
    assert "TOOLS_CONSUMER" in shown(page.get("/groups?kind=all"))


def test_client_pages_list_producers_and_consumers(page: httpx.Client) -> None:
    until = time.monotonic() + 60
    while "shop" not in (text := shown(page.get("/clients"))):  # a producer is known from its first heartbeat on
        assert time.monotonic() < until, text
        time.sleep(0.1)
    assert "invoices" in text
    only = shown(page.get("/clients?q=invoices"))
    assert "mailer" not in only
    link = re.search(r'href="(/consumer[^"]*)"', page.get("/clients?q=invoices").text)
    assert link
    assert "orders" in shown(page.get(html.unescape(link[1])))


def test_messages_are_found_in_each_way(page: httpx.Client, demo: DemoCluster) -> None:
    order = demo.ids["order"]
    for query in (
        {"by": "topic", "tag": "paid", "most": "200"},
        {"by": "key", "key": KEY},
        {"by": "unique", "key": order},
        {"by": "id", "id": demo.ids["offset"]},
        {"by": "id", "id": order},
    ):
        text = shown(page.get("/messages", params={"topic": "orders", **query}))
        assert order in text, query
    assert "No message was found." in shown(page.get("/messages", params={"topic": "orders", "by": "key", "key": "x"}))
    early = {"topic": "orders", "by": "topic", "end": "2001-01-01T00:00"}
    assert "No message was found in this time." in shown(page.get("/messages", params=early))
    later = {"topic": "orders", "by": "topic", "begin": "2001-01-01T00:00", "tag": "sent"}
    assert "sent" in shown(page.get("/messages", params=later))
    bad = page.get("/messages", params={"topic": "orders", "by": "topic", "begin": "yesterday"})
    assert "'yesterday' is no time" in shown(bad, 400)
    turned = {"begin": "2026-12-01T00:00", "end": "2026-11-01T00:00"}
    for path in (
        "/messages?topic=orders",
        "/messages?topic=orders&by=key&key=x",
        "/dlq/invoices",
        "/dlq-export/invoices",
    ):
        refused = page.get(path, params={**httpx.QueryParams(path.partition("?")[2]), **turned})
        assert "'2026-12-01T00:00' is not before the end, '2026-11-01T00:00'" in shown(refused, 400), path
    at = page.get("/messages", params={"topic": "bodies", "by": "offset", "queue": "0", "offset": "1"})
    assert demo.ids["escapes"] in shown(at)
    missing = shown(page.get("/messages", params={"topic": "nowhere", "by": "topic"}))
    assert "no route of topic nowhere" in missing or "no topic nowhere" in missing


def test_topic_page_lists_newest_messages_up_to_limit(page: httpx.Client, demo: DemoCluster) -> None:
    text = page.get("/messages", params={"topic": "bodies", "by": "topic", "most": "3"}).text
    ids = re.findall(r"<code class=\"id\">(\w+)</code>", text)
    assert ids == [demo.ids[name] for name in ("large", "latin", "gzip")]


def test_body_is_shown_escaped_as_text_json_or_hexadecimal(page: httpx.Client) -> None:
    def body(offset: int, view: str = "") -> str:
        where = {"topic": "bodies", "broker": "broker-a", "queue": "0", "offset": str(offset), "view": view}
        return page.get("/message", params=where).text

    assert html.escape(HTML.decode()) in body(0)
    assert "red ⟨ESC⟩[31mtext⟨BEL⟩ and ⟨U+202E⟩txt.exe⟨U+2066⟩" in body(1)
    assert "1b 5b 33 31 6d" in body(1, "hex")
    assert "Grüße aus 漢字 🚚\n\tzweite Zeile" in body(2)
    assert "&#34;city&#34;: &#34;München&#34;" in body(3)
    assert "M\\u00fcnchen" in body(3, "text")
    assert "00000000  7b 22 69 64" in body(3, "hex")
    assert "00 01 02 03" in body(4)
    assert "The first 65,536 of 131,072 characters." in body(7)
    assert body(7).count("0123456789abcdef") == 4096
    assert EVIL_KEY not in body(0)
    assert "&lt;b&gt;⟨ESC⟩[31m⟨U+202E⟩" in body(0)


def test_body_download_is_complete(page: httpx.Client, demo: DemoCluster) -> None:
    where = {"topic": "bodies", "broker": "broker-a", "queue": "0"}
    answer = page.get("/message/body", params={**where, "offset": "0"})
    assert answer.content == HTML
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="{demo.ids["html"]}.bin"'
    assert len(page.get("/message/body", params={**where, "offset": "7"}).content) == 131_072
    assert page.get("/message/body", params={**where, "offset": "99"}).status_code == 404
    assert page.get("/message/body", params={**where, "queue": "x"}).status_code == 400


def test_trace_page_shows_message_trace(page: httpx.Client, demo: DemoCluster) -> None:
    where = {"topic": "orders", "id": demo.ids["order"]}
    for _ in range(200):
        text = shown(page.get("/trace", params=where))
        if "sent" in text and "listener returned" in text:
            break
    assert "listener returned" in text
    assert "invoices" in text
    assert "shop" in text
    none = shown(page.get("/trace", params={"id": "nothing"}))
    assert "No client has recorded this message." in none


def test_pending_messages_are_listed_by_due_time(page: httpx.Client) -> None:
    answer = page.get("/pending")
    rows = rows_of(answer)
    for level in (["5", "1m", "broker-a", "2"], ["9", "5m", "broker-a", "3"], ["18", "2h", "broker-a", "1"]):
        assert level in rows
    assert "producer group checkout" in shown(answer)
    assert [row[1] for row in rows if len(row) == 6].count("timer") == 3


def test_read_only_console_changes_nothing(page: httpx.Client, broker: EmbeddedBroker, demo: DemoCluster) -> None:
    token = form_token(page)
    for path, fields in (
        ("/topics/create", {"topic": "new"}),
        ("/topics/change", {"topic": "orders", "read": "1"}),
        ("/topics/delete", {"topic": "orders", "again": "orders"}),
        ("/reset", {"group": "billing", "topic": "orders", "to": "latest"}),
        ("/resend", {"group": "mailer", "letter": "broker-a/0/0"}),
        ("/groups/create", {"group": "new"}),
        ("/groups/change", {"group": "billing"}),
        ("/groups/delete", {"group": "billing", "again": "billing"}),
        ("/send", {"topic": "orders", "body": "x"}),
        ("/broker-setting", {"broker": "broker-a", "key": "fileReservedTime", "value": "1"}),
        ("/broker-tasks", {"broker": "broker-a", "task": "wipe"}),
        ("/deliver", {"group": "invoices", "topic": "orders"}),
    ):
        refused = page.post(path, data={**fields, "form_token": token})
        assert "read-only" in shown(refused, 403), path
        assert page.post(path).status_code == 403
    with AdminClient(broker.namesrv) as admin:
        assert "new" not in admin.topics()
        assert "orders" in admin.topics()
    pages = (
        *("/topics", "/topics/orders", "/delete-topic?topic=orders", "/reset?group=billing&topic=orders", "/groups"),
        *("/groups/billing", "/delete-group?group=billing", "/send?topic=orders", "/broker-tasks?broker=broker-a"),
        *("/broker-setting?broker=broker-a&key=fileReservedTime", "/resend?group=mailer&all=yes", "/brokers/broker-a"),
        f"/deliver?group=invoices&topic=orders&id={demo.ids['order']}",
    )
    for path in pages:
        assert 'method="post"' not in page.get(path).text


def form_token(client: httpx.Client) -> str:
    found = re.search(r'name="form_token" value="(\w+)"', client.get("/topics").text)
    return found[1] if found else ""


def test_form_without_token_of_run_is_refused(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    for token in ("", "wrong"):
        refused = changing.post("/topics/create", data={"topic": "forged", "form_token": token})
        assert "not of this run" in shown(refused, 403)
    token = form_token(changing)
    other = {"topic": "forged", "form_token": token}
    assert changing.post("/topics/create", data=other, headers={"origin": "http://evil.example"}).status_code == 403
    assert changing.post("/topics/create", json=other).status_code == 415
    assert changing.post("/topics/create", content=b"x" * (1 << 21), headers=FORM).status_code == 413
    assert changing.get("/topics/create").status_code == 404
    with AdminClient(broker.namesrv) as admin:
        assert "forged" not in admin.topics()


FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_topic_can_be_created_changed_and_deleted(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    form = form_of(changing.get("/topics"), "/topics/create")
    made = changing.post("/topics/create", data={**form, "topic": "life", "read": "2", "write": "2", "type": "FIFO"})
    assert made.status_code == 303
    text = shown(changing.get(made.headers["location"]))
    assert "life was created at broker-a." in text
    assert "message.type=FIFO" in text
    assert "was created" not in changing.get(made.headers["location"]).text
    twice = changing.post("/topics/create", data={**form, "topic": "life"})
    assert "life exists already at broker-a." in shown(twice, 409)

    change = form_of(changing.get("/topics/life"), "/topics/change")
    changed = changing.post("/topics/change", data={**change, "read": "5", "write": "3", "perm": "4"})
    assert changed.status_code == 303
    with AdminClient(broker.namesrv) as admin:
        now = admin.topic_config("life", broker.address)
        assert (now.read_queue_nums, now.write_queue_nums, now.perm) == (5, 3, 4)
        assert now.attributes == {"message.type": "FIFO"}
    conflict = changing.post("/topics/change", data={**change, "read": "9"})
    assert "has been changed since the page was loaded" in shown(conflict, 409)

    delete = form_of(changing.get("/delete-topic?topic=life"), "/topics/delete")
    assert "Type the name" in shown(changing.post("/topics/delete", data={**delete, "again": "other"}), 400)
    assert changing.post("/topics/delete", data={**delete, "again": "life"}).status_code == 303
    again = changing.post("/topics/delete", data={**delete, "again": "life"})
    assert "has been deleted meanwhile" in shown(again, 409)
    own = changing.post("/topics/delete", data={**delete, "topic": "TBW102", "again": "TBW102"})
    assert "of RocketMQ itself" in shown(own, 400)
    wrong = changing.post("/topics/create", data={**form, "topic": "no/topic"})
    assert "illegal characters" in shown(wrong, 400)


def test_offset_reset_follows_preview(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    def offsets() -> dict[int, int]:
        return broker.consumer_offsets("billing", "orders")

    before = offsets()
    where = {"group": "billing", "topic": "orders", "to": "earliest"}
    preview = changing.get("/reset", params=where)
    assert f"{sum(before.values())}" in shown(preview)
    assert offsets() == before
    form = form_of(preview, "/reset")
    moved = changing.post("/reset", data=form)
    assert moved.status_code == 303
    assert "billing was reset in 4 of 4 queues of orders." in shown(changing.get(moved.headers["location"]))
    assert offsets() == dict.fromkeys(range(4), 0)

    one = {**where, "to": "offset", "offset": "3", "queue": "2"}
    assert changing.post("/reset", data=form_of(changing.get("/reset", params=one), "/reset")).status_code == 303
    assert offsets() == {0: 0, 1: 0, 2: 3, 3: 0}

    conflict = changing.post("/reset", data=form)
    assert "Nothing was changed" in shown(conflict, 409)
    assert "broker-a/2" in shown(conflict, 409)
    assert offsets() == {0: 0, 1: 0, 2: 3, 3: 0}
    assert changing.post("/reset", data=form_of(conflict, "/reset")).status_code == 303  # the new preview
    assert offsets() == dict.fromkeys(range(4), 0)

    at = {**where, "to": "time", "time": "2001-01-01T00:00:00"}
    assert shown(changing.get("/reset", params=at)).count("broker-a") == 4
    assert "There is no group misspelt." in shown(changing.get("/reset", params={**where, "group": "misspelt"}), 404)
    assert "enter the time" in shown(changing.get("/reset", params={**where, "to": "time"}), 400)
    assert changing.post("/reset", data={**form, "seen": "[1]"}).status_code == 400


def test_dead_letters_are_sent_again_once(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    assert "mailer" in shown(changing.get("/dlq"))
    letters = re.findall(r'name="letter" value="([^"]*)"', changing.get("/dlq/mailer").text)
    assert len(letters) >= 3
    chosen = {"group": "mailer", "letter": letters[:2]}
    asked = changing.get("/resend", params=chosen)
    assert "payments" in shown(asked)
    form = {**form_of(asked, "/resend"), "letter": letters[:2], "to": "topic"}
    before = len(broker.messages("payments"))
    sent = changing.post("/resend", data=form)
    assert sent.status_code == 303
    assert "2 of 2 dead letters were resent." in shown(changing.get(sent.headers["location"]))
    found = broker.wait_for_messages("payments", before + 2)
    assert {one.keys[0] for one in found[-2:]} <= {"payment-0", "payment-1", "payment-2"}

    conflict = changing.post("/resend", data=form)
    assert "2 of these letters were resent since the page was loaded" in shown(conflict, 409)
    assert len(broker.messages("payments")) == before + 2
    assert changing.post("/resend", data={**form, "letter": "x"}).status_code == 400
    assert changing.post("/resend", data={**form, "to": "elsewhere"}).status_code == 400
    gone = changing.post("/resend", data={**form_of(asked, "/resend"), "letter": "broker-a/0/99"})
    assert "it is not there any more" in shown(changing.get(gone.headers["location"]))


def test_dead_letters_are_exported_as_json_lines(page: httpx.Client, demo: DemoCluster) -> None:
    answer = page.get("/dlq-export/mailer")
    assert answer.headers["content-disposition"] == 'attachment; filename="dead-letters-mailer.jsonl"'
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert {one["body"] for one in found} == {f'{{"payment": {number}}}' for number in range(3)}
    assert {one["properties"]["RETRY_TOPIC"] for one in found} == {"payments"}
    assert page.get("/dlq-export/mailer?end=2001-01-01").text == ""
    assert page.get("/dlq-export/nobody").status_code == 404


def test_all_dead_letters_of_a_time_are_chosen(changing: httpx.Client) -> None:
    asked = changing.get("/resend?group=mailer&all=yes")
    count = asked.text.count('name="letter"')
    assert count >= 3
    assert f"Resend {count} dead letters?" in shown(asked)
    assert "no dead letters in this time" in shown(changing.get("/resend?group=mailer&all=yes&end=2001-01-01"), 404)


def test_group_can_be_created_changed_and_deleted(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    def settings() -> SubscriptionGroupConfig | None:
        with AdminClient(broker.namesrv) as admin:
            return admin.subscription_groups(broker.address).get("crew")

    form = form_of(changing.get("/groups"), "/groups/create")
    made = changing.post("/groups/create", data={**form, "group": "crew", "retries": "3"})
    assert "crew was created at broker-a." in shown(changing.get(made.headers["location"]))
    found = settings()
    assert found is not None
    assert (found.retry_max_times, found.consume_enable, found.consume_message_orderly) == (3, True, False)
    assert "exists already" in shown(changing.post("/groups/create", data={**form, "group": "crew"}), 409)
    assert "illegal characters" in shown(changing.post("/groups/create", data={**form, "group": "a/b"}), 400)

    change = form_of(changing.get("/groups/crew"), "/groups/change")
    del change["consume_enable"]  # a box that is not checked
    assert changing.post("/groups/change", data={**change, "retries": "-1"}).status_code == 303
    found = settings()
    assert found is not None
    assert (found.retry_max_times, found.consume_enable) == (-1, False)
    assert "has been changed since" in shown(changing.post("/groups/change", data=change), 409)

    delete = form_of(changing.get("/delete-group?group=crew"), "/groups/delete")
    assert "Type the name" in shown(changing.post("/groups/delete", data={**delete, "again": "crews"}), 400)
    gone = changing.post("/groups/delete", data={**delete, "again": "crew"})
    assert "crew was deleted at broker-a." in shown(changing.get(gone.headers["location"]))
    assert settings() is None
    assert "deleted meanwhile" in shown(changing.post("/groups/delete", data={**delete, "again": "crew"}), 409)


def test_form_sends_message(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    form = form_of(changing.get("/send?topic=audit-log"), "/send")
    written = {"tag": "t", "keys": "one two", "properties": "a=b\r\nc=d=e", "body": " first\r\n<b>second</b> "}
    sent = changing.post("/send", data={**form, **written})
    page = changing.get(sent.headers["location"])
    assert "is stored in queue 0 at broker-a." in shown(page)
    [message] = broker.wait_for_messages("audit-log", 1)
    assert (message.body, message.tags, message.keys) == (b" first\n<b>second</b> ", "t", ["one", "two"])
    assert (message.properties["a"], message.properties["c"]) == ("b", "d=e")
    link = re.search(r'href="(/message\?[^"]*)"', page.text)
    assert link
    assert "<b>second</b>" in shown(changing.get(html.unescape(link[1])))
    for wrong, text in (({"properties": "x"}, "NAME=VALUE"), ({"properties": "KEYS=x"}, "Nothing was sent")):
        assert text in shown(changing.post("/send", data={**form, **written, **wrong}), 400)
    assert "There is no topic absent." in shown(changing.post("/send", data={**form, "topic": "absent"}), 400)
    assert len(broker.messages("audit-log")) == 1


def test_broker_setting_can_be_changed(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    path = "/broker-setting?broker=broker-a&key=fileReservedTime"
    assert 'key=fileReservedTime"' in changing.get("/brokers/broker-a?q=fileReservedTime").text
    form = form_of(changing.get(path), "/broker-setting")
    assert form["seen"] == "72"
    changed = changing.post("/broker-setting", data={**form, "value": "48"})
    assert "fileReservedTime of broker-a is 48 now; it was 72." in shown(changing.get(changed.headers["location"]))
    conflict = changing.post("/broker-setting", data={**form, "value": "24"})
    assert "Nothing was changed" in shown(conflict, 409)
    with AdminClient(broker.namesrv) as admin:
        assert admin.broker_config(broker.address)["fileReservedTime"] == "48"
    assert "has no setting absent" in shown(changing.get("/broker-setting?broker=broker-a&key=absent"), 404)


def test_task_of_broker_is_started_by_form(changing: httpx.Client, broker: EmbeddedBroker) -> None:
    form = form_of(changing.get("/broker-tasks?broker=broker-a"), "/broker-tasks")
    for task, perm in (("wipe", 4), ("add", 6), ("expired-logs", 6)):
        done = changing.post("/broker-tasks", data={**form, "task": task})
        assert "broker-a" in shown(changing.get(done.headers["location"])), task
        with AdminClient(broker.namesrv) as admin:
            assert admin.topic_route("audit-log").queue_datas[0].perm == perm
    assert changing.post("/broker-tasks", data={**form, "task": "format"}).status_code == 400


def test_message_can_be_delivered_to_consumer_again(changing: httpx.Client, demo: DemoCluster) -> None:
    where = {"topic": "orders", "id": demo.ids["order"]}
    assert "deliver again" in shown(changing.get("/trace", params=where))
    asked = changing.get("/deliver", params={**where, "group": "invoices"})
    client = re.search(r'<option value="([^"]*)"', asked.text)
    assert client
    form = {**form_of(asked, "/deliver"), "client": html.unescape(client[1])}
    done = changing.post("/deliver", data=form)
    assert "answered CR_SUCCESS after" in shown(changing.get(done.headers["location"]))
    gone = changing.post("/deliver", data={**form, "client": "somebody"})
    assert "Nothing was delivered" in shown(gone, 404)
    assert "No consumer of billing is connected." in shown(
        changing.get("/deliver", params={**where, "group": "billing"})
    )


def test_popped_messages_are_pending_until_acknowledged(page: httpx.Client, broker: EmbeddedBroker) -> None:
    broker.create_topic("popped", queues=1)
    with Producer(broker.namesrv) as producer:
        for number in range(3):
            producer.send(Message("popped", b"%d" % number))
    with SimpleConsumer(broker.namesrv, consumer_group="poppers") as consumer:
        consumer.subscribe("popped")
        got = list[ReceivedMessage]()
        while len(got) < 3:
            got += consumer.receive(invisible_ms=600_000)
        assert ["poppers", "popped", "3"] in rows_of(page.get("/pending"))
        consumer.ack(got[0])
    answer = page.get("/pending")
    rows = rows_of(answer)
    assert ["poppers", "popped", "2"] in rows
    assert [row[2] for row in rows if row[1:2] == ["popped"] and len(row) == 6] == ["popped"] * 2
    assert "REVIVE" not in shown(answer)


def test_partly_missing_cluster_shows_rest_and_names_missing_servers(tmp_path: Path) -> None:
    with EmbeddedBroker(console=True) as broker, unreachable_broker(broker, tmp_path) as (address, announced):
        with AdminClient(broker.namesrv) as admin:
            for one in (broker.address, address):
                admin.create_topic("both", broker=one)
        with httpx.Client(base_url=broker.console, timeout=60) as client:
            for path in (
                *("/", "/brokers", "/topics", "/topics/both", "/groups", "/clients", "/messages?topic=both"),
                *("/pending", "/brokers/broker-b", "/live/overview", "/messages?topic=both&by=key&key=x"),
            ):
                text = shown(client.get(path))
                assert "missing on this page" in text, path
                assert announced in text or "broker-b" in text, path
            assert "no answer" in shown(client.get("/"))
            assert "1 of 2 brokers answer" in shown(client.get("/"))
            assert "broker-a" in shown(client.get("/topics/both"))
            broker.stop()
            assert "The cluster does not answer" in shown(client.get("/topics/both"), 502)


def test_broker_with_accepted_keys_names_them_on_its_page(tmp_path: Path) -> None:
    settings = {"storeType": "defaultRocksDB", "enableLmq": "true", "acceptWithoutEffect": "storeType,enableLmq"}
    with EmbeddedBroker(tmp_path, console=True, settings=settings) as broker:
        text = shown(httpx.get(f"{broker.console}brokers/broker-a", timeout=60))
    words = " ".join(text.split())
    assert "started although it does not honour storeType , enableLmq ( acceptWithoutEffect )" in words, words[:2000]


def test_hanging_broker_gets_one_request_page(tmp_path: Path) -> None:
    with (
        EmbeddedBroker() as broker,
        unreachable_broker(broker, tmp_path) as (address, announced),
        AdminClient(broker.namesrv) as admin,
        silent_server(announced) as accepted,
        console_as(ClientConfig(broker.namesrv, request_timeout_ms=150)) as client,
    ):
        for one in (broker.address, address):
            admin.create_topic("both", broker=one)
        admin.create_subscription_group("readers", broker=broker.address)
        for path in ("/pending", "/topics/both", "/groups/readers", "/messages?topic=both", "/brokers/broker-b"):
            before = len(accepted)
            assert "missing on this page" in shown(client.get(path)), path
            assert len(accepted) == before + 1, path


def test_missing_name_server_is_named(broker: EmbeddedBroker) -> None:
    with console_as(ClientConfig(f"127.0.0.1:1;{broker.namesrv}")) as client:
        for path in ("/", "/brokers"):
            told = " ".join(shown(client.get(path)).split())
            assert "One answer is missing on this page." in told
            assert "127.0.0.1:1 : cannot connect: Connection refused" in told
            assert "broker-a" in told


def test_cluster_without_brokers_is_not_shown_as_healthy(tmp_path: Path) -> None:
    loop, server = LoopThread("name server"), NamesrvServer(NamesrvConfig(listen_port=0), home=tmp_path)
    try:
        loop.run(server.start())
        with console_as(ClientConfig(server.address)) as client:
            told = " ".join(shown(client.get("/")).split())
    finally:
        loop.close(server.shutdown())
    assert "No broker is registered. 0 messages behind." in told
    assert "brokers answer" not in told


@contextmanager
def silent_server(address: str) -> Iterator[list[socket.socket]]:
    """Accepts connections at an address, and answers nothing: a list that grows with the connections."""
    accepted = list[socket.socket]()
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listening:

        def accept() -> None:
            with suppress(OSError):  # the end of the block
                while True:
                    accepted.append(listening.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield accepted
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in accepted:
                one.close()


@contextmanager
def unreachable_broker(broker: EmbeddedBroker, path: Path) -> Iterator[tuple[str, str]]:
    """A broker that is registered under an address at which nothing listens: its real address, and that one."""
    config = LiveConfig()
    entries = {"brokerName": "broker-b", "namesrvAddr": broker.namesrv, "brokerIP1": "127.0.0.9"}
    config.update({**entries, "mappedFileSizeCommitLog": "1048576"})
    config.broker = replace(config.broker, listen_port=0)
    pair, loop = Standalone(path, config, None, Extras(given=frozenset(entries))), LoopThread("second broker")
    try:
        loop.run(pair.start())
        port = pair.broker_address.rpartition(":")[2]
        with AdminClient(broker.namesrv) as admin:
            deadline = time.monotonic() + 60
            while "broker-b" not in admin.cluster_info().broker_addr_table and time.monotonic() < deadline:
                time.sleep(0.01)
        yield f"127.0.0.1:{port}", f"127.0.0.9:{port}"
    finally:
        loop.close(pair.shutdown())


@pytest.mark.parametrize(
    "path",
    [
        *("/message?topic=x", "/message", "/messages?by=x", "/brokers/none", "/brokers/broker-a?id=x", "/groups/%FF"),
        "/message?topic=orders&broker=broker-a&queue=9999&offset=0",
    ],
)
def test_wrong_addresses_are_reported(page: httpx.Client, path: str) -> None:
    assert page.get(path).status_code in (400, 404)


ACCOUNTS = """
accounts:
- accessKey: reading
  secretKey: reading-secret
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
- accessKey: operator
  secretKey: operator-secret
  whiteRemoteAddress:
  admin: true
"""


def test_page_for_refused_account_names_missing_permission(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    with EmbeddedBroker(settings={"aclEnable": True, "aclPlainFile": str(accounts)}) as broker:
        with console_as(account(broker, "operator")) as client:
            form = form_of(client.get("/topics"), "/topics/create")
            assert client.post("/topics/create", data={**form, "topic": "orders"}).status_code == 303
            assert "orders" in shown(client.get("/topics/orders"))
        with console_as(account(broker, "reading")) as client:
            fields = {**form, "form_token": form_token(client), "topic": "mine"}
            told = shown(client.get(client.post("/topics/create", data=fields).headers["location"]))
            assert "mine was not created." in told
            assert "NO_PERMISSION" in told
            assert "The account may not do this" in shown(client.get("/groups"), 403)
            assert "refuses" in shown(client.get("/"))
            assert "orders" in shown(client.get("/topics"))
        with AdminClient(broker.namesrv, access_key="operator", secret_key="operator-secret") as admin:
            assert "mine" not in admin.topics()


def account(broker: EmbeddedBroker, name: str) -> ClientConfig:
    """The connection with an account of a broker."""
    return ClientConfig(broker.namesrv, access_key=name, secret_key=f"{name}-secret")


@contextmanager
def console_as(config: ClientConfig) -> Iterator[httpx.Client]:
    """A browser at a console with a connection of its own."""
    loop = LoopThread("console")
    server = ConsoleServer(cluster_site(config), Access(allow_changes=True))
    try:
        loop.run(server.start())
        with httpx.Client(base_url=server.url, timeout=30) as client:
            yield client
    finally:
        loop.close(server.shutdown())
