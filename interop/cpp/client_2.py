"""The basic paths of rocketmq-client-python 2 against a name server and its broker: a JSON line says what came.

Usage: PYTHONPATH=FOLDER client_2.py NAMESRV [ACCESS_KEY SECRET_KEY]
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict

from rocketmq.client import ConsumeStatus, Message, Producer, PushConsumer, SendStatus

TOPIC, SHARDS, LATE = "cpp-plain", "cpp-shards", "cpp-late"
EACH = 10
WAIT_SECONDS = 60
NAMESRV, *CREDENTIALS = sys.argv[1:]


def connected(client):
    client.set_name_server_address(NAMESRV)
    if CREDENTIALS:
        client.set_session_credentials(*CREDENTIALS, "ALIYUN")
    return client


def message(topic, body, tags="", delay=0):
    made = Message(topic)
    made.set_body(body)
    made.set_tags(tags)
    made.set_keys("key-" + body[:20])
    made.set_property("who", "cpp")
    if delay:
        made.set_delay_time_level(delay)
    return made


def send():
    """Every way of sending that this client has; how many were answered with OK."""
    producer = connected(Producer("cpp-producers", timeout=30_000))
    producer.start()
    results = [producer.send_sync(message(TOPIC, f"sync-{number:02}", "sync")) for number in range(EACH)]
    results.append(producer.send_sync(message(TOPIC, "big-" + "x" * 20_000, "big")))
    for number in range(EACH):
        producer.send_oneway(message(TOPIC, f"oneway-{number:02}", "oneway"))
    for number in range(4 * EACH):
        results.append(
            producer.send_orderly_with_sharding_key(message(SHARDS, f"{number % 4}-{number:02}"), f"shard-{number % 4}")
        )
    results.append(producer.send_sync(message(LATE, "late", delay=1)))
    return sum(result.status == SendStatus.OK and bool(result.msg_id) for result in results)


def consume(group, topic, count, expression="*", *, orderly=False, refuse=()):
    """The messages as they came, until ``count`` are there; those with a body in ``refuse`` are refused once."""
    came, enough, lock = [], threading.Event(), threading.Lock()

    def listen(one):
        body = one.body.decode()
        with lock:
            came.append((body, one.tags.decode(), one.keys.decode(), one["who"].decode(), one.reconsume_times))
            if len(came) >= count:
                enough.set()
        again = body in refuse and one.reconsume_times == 0
        return ConsumeStatus.RECONSUME_LATER if again else ConsumeStatus.CONSUME_SUCCESS

    consumer = connected(PushConsumer(group, orderly=orderly))
    consumer.set_instance_name(group)
    consumer.subscribe(topic, listen, expression)
    consumer.start()
    enough.wait(WAIT_SECONDS)
    time.sleep(0.3)  # for one too many
    LISTENING.append(consumer)
    return sorted(came) if not orderly else came


LISTENING = []


def main():
    facts = {"answered": send()}
    plain = consume("cpp-plain-group", TOPIC, 2 * EACH + 1)
    facts["consumed"] = [(body[:20], len(body), *rest) for body, *rest in plain]
    facts["tagged"] = [body for body, *_ in consume("cpp-tag-group", TOPIC, EACH, "sync || none")]
    again = consume("cpp-retry-group", TOPIC, EACH + 1, "sync", refuse={"sync-03"})
    facts["retried"] = [(body, times) for body, *_, times in again if body == "sync-03"]
    shards = defaultdict(list)
    for body, *_ in consume("cpp-shard-group", SHARDS, 4 * EACH, orderly=True):
        shards[body[0]].append(body)
    facts["order"] = shards
    facts["late"] = [body for body, *_ in consume("cpp-late-group", LATE, 1)]
    print(json.dumps(facts), flush=True)
    os._exit(0)  # this librocketmq.so ends in a segmentation fault when a consumer is shut down, at the real broker too


main()
