"""The basic paths of the client over librocketmq 1 against a name server and its broker: a JSON line says what came.

Usage: PYTHONPATH=FOLDER client_1.py NAMESRV
"""

import json
import sys
import threading
import time

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

TOPIC = "cpp-older"
EACH = 10
WAIT_SECONDS = 60
NAMESRV = sys.argv[1]


def message(body, tags):
    made = Message(TOPIC)
    made.set_body(body)
    made.set_tags(tags)
    made.set_keys("key-" + body)
    return made


def messages(way):
    return [message(f"{way}-{number:02}", way) for number in range(EACH)]


def send():
    """Every way of sending; how many callbacks came, and how many of them with a result."""
    producer = Producer("cpp-older-producers", timeout=30_000)
    producer.set_namesrv_addr(NAMESRV)
    producer.start()
    for one in messages("sync"):
        producer.send_sync(one)
    producer.send_batch(messages("batch"))
    for number, one in enumerate(messages("orderly")):
        producer.send_orderly(one, number % 2)
    for one in messages("oneway"):
        producer.send_oneway(one)
    called, all_called = [], threading.Event()

    def note(result):
        called.append(hasattr(result, "offset"))
        if len(called) == EACH:
            all_called.set()

    for one in messages("async"):
        producer.send_async(one, note, note)
    all_called.wait(WAIT_SECONDS)
    time.sleep(0.3)  # for what went one-way
    producer.shutdown()
    return called


def pull():
    """What a pull consumer finds, and where."""
    consumer = PullConsumer("cpp-older-pull")
    consumer.set_namesrv_addr(NAMESRV)
    consumer.start()
    found = [(one.body.decode(), one.tags.decode(), one.queue_id, one.queue_offset) for one in consumer.pull(TOPIC)]
    consumer.shutdown()
    return found


def push(count, *, orderly):
    came, enough = [], threading.Event()

    def listen(one):
        came.append((one.body.decode(), one.keys.decode()))
        if len(came) >= count:
            enough.set()

    consumer = PushConsumer(f"cpp-older-push-{orderly}", orderly=orderly)
    consumer.set_namesrv_addr(NAMESRV)
    consumer.set_instance_name(f"push-{orderly}")
    consumer.subscribe(TOPIC, listen)
    consumer.start()
    enough.wait(WAIT_SECONDS)
    time.sleep(0.3)  # for one too many
    consumer.shutdown()
    return came


def main():
    called = send()
    pulled = pull()
    both = {str(orderly): push(5 * EACH, orderly=orderly) for orderly in (False, True)}
    print(json.dumps({"called": called, "pulled": pulled, "pushed": both}), flush=True)


main()
