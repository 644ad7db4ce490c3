"""RocketMQ's Python SDK behind the line protocol of interop/grpc/README.md: JSON lines on stdin and stdout.

The SDK takes delivery times and invisible times in whole seconds; both are rounded up here.
"""

import hashlib
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

THREADS = 64  # a receive holds its thread while it waits
RESOLUTIONS = {
    "COMMIT": TransactionResolution.COMMIT,
    "ROLLBACK": TransactionResolution.ROLLBACK,
    "UNKNOWN": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


def seconds(ms):
    return -(-ms // 1000)


class Checker(TransactionChecker):
    """Answers every check alike, and notes whose message was asked about."""

    def __init__(self, resolution):
        self.resolution, self.asked = resolution, []

    def check(self, message):
        self.asked.append(sorted(message.keys))
        return RESOLUTIONS[self.resolution]


class Inbox(MessageListener):
    """Notes every message, takes ``consume_ms`` for it, and fails it if its delivery attempt is at most ``fail``."""

    def __init__(self, fail, consume_ms):
        self.fail, self.consume_ms, self.lines, self.changed = fail, consume_ms, [], threading.Condition()

    def consume(self, message):
        with self.changed:
            self.lines.append(line_of(message))
            self.changed.notify_all()
        time.sleep(self.consume_ms / 1000)
        return ConsumeResult.FAILURE if message.delivery_attempt <= self.fail else ConsumeResult.SUCCESS

    def wait(self, count, timeout_ms):
        with self.changed:
            self.changed.wait_for(lambda: len(self.lines) >= count, timeout_ms / 1000)
            return list(self.lines)


def line_of(message):
    return {
        "id": message.message_id,
        "topic": message.topic,
        "sha256": hashlib.sha256(message.body).hexdigest(),
        "size": len(message.body),
        "tag": message.tag or None,
        "keys": sorted(message.keys),
        "properties": message.properties,
        "group": message.message_group or None,
        "attempt": message.delivery_attempt,
        "deliverAtMs": message.delivery_timestamp or None,
        "priority": message.priority or None,
        "atMs": int(time.time() * 1000),
    }


class Client:
    """The commands; each is a method, named as the protocol names it."""

    def __init__(self):
        self.clients, self.transactions, self.messages, self.lock = {}, {}, {}, threading.Lock()

    def producer(self, name, check=None, topics=(), tls=False, **server):
        checker = Checker(check) if check else None
        made = Producer(configuration(**server), topics, checker, tls)
        made.startup()
        self.clients[name] = made, checker
        return {"clientId": made.client_id}

    def consumer(self, name, group, subscriptions, awaitMs, tls=False, **server):
        made = SimpleConsumer(configuration(**server), group, filters(subscriptions), seconds(awaitMs), tls_enable=tls)
        made.startup()
        self.clients[name] = made, None
        return {"clientId": made.client_id}

    def push(self, name, group, subscriptions, fail=0, consumeMs=0, tls=False, **server):
        inbox = Inbox(fail, consumeMs)
        made = PushConsumer(configuration(**server), group, inbox, filters(subscriptions), tls_enable=tls)
        made.startup()
        self.clients[name] = made, inbox
        return {"clientId": made.client_id}

    def send(self, client, message, transaction=None):
        producer, _ = self.clients[client]
        built = message_of(**message)
        if transaction is None:
            receipt = producer.send(built)
        else:
            self.transactions[transaction] = begun = producer.begin_transaction()
            receipt = producer.send(built, begun)
        return {"id": receipt.message_id, "recall": receipt.recall_handle or None}

    def end(self, transaction, resolution):
        begun = self.transactions.pop(transaction)
        begun.commit() if resolution == "COMMIT" else begun.rollback()
        return {}

    def checks(self, client):
        return {"keys": self.clients[client][1].asked}

    def recall(self, client, topic, handle):
        recalled = self.clients[client][0].recall_message(topic, handle)
        return {"id": getattr(recalled, "message_id", recalled)}

    def receive(self, client, max, invisibleMs):
        lines = []
        for message in self.clients[client][0].receive(max, seconds(invisibleMs)):
            with self.lock:
                handle = len(self.messages)
                self.messages[handle] = message
            lines.append(line_of(message) | {"handle": handle})
        return {"messages": lines}

    def ack(self, client, handle):
        self.clients[client][0].ack(self.messages[handle])
        return {}

    def invisible(self, client, handle, ms):
        self.clients[client][0].change_invisible_duration(self.messages[handle], seconds(ms))
        return {}

    def inbox(self, client, count, timeoutMs):
        return {"messages": self.clients[client][1].wait(count, timeoutMs)}

    def close(self, client):
        self.clients.pop(client)[0].shutdown()
        return {}


def configuration(endpoints, namespace="", accessKey="", secretKey=""):
    return ClientConfiguration(endpoints, Credentials(accessKey, secretKey), namespace, request_timeout=10)


def filters(subscriptions):
    kinds = {"TAG": FilterType.TAG, "SQL92": FilterType.SQL}
    return {one["topic"]: FilterExpression(one["expression"], kinds[one["type"]]) for one in subscriptions}


def message_of(topic, body, size=None, tag=None, keys=(), properties=None, group=None, deliverAtMs=None, priority=None):
    message = Message()
    message.topic = topic
    text = body.encode()
    message.body = text if size is None else (text * (size // len(text) + 1))[:size]
    if tag is not None:
        message.tag = tag
    for key in keys:
        message.keys = key  # the setter adds
    for key, value in (properties or {}).items():
        message.add_property(key, value)
    if group is not None:
        message.message_group = group
    if deliverAtMs is not None:
        message.delivery_timestamp = seconds(deliverAtMs)
    if priority is not None:
        message.priority = priority
    return message


def error_line(error):
    code = getattr(error, "code", None)
    return {"type": type(error).__name__, "code": int(code) if isinstance(code, int) else None, "message": str(error)}


def main():
    client, out = Client(), threading.Lock()

    def answer(request):
        number, command = request.pop("id"), request.pop("do")
        try:
            reply = {"id": number, "result": getattr(client, command)(**request)}
        except Exception as error:
            reply = {"id": number, "error": error_line(error)}
        with out:
            print(json.dumps(reply), flush=True)

    threads = ThreadPoolExecutor(THREADS)
    for line in sys.stdin:
        threads.submit(answer, json.loads(line))
    os._exit(0)  # threads of the SDK would keep the process


if __name__ == "__main__":
    main()
