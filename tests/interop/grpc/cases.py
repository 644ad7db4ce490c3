"""The cases of the matrix: what one SDK does at one server, and the facts that came of it.

A case is a function of a Scene; its name with hyphens is the name of the case. Facts hold nothing that differs from run
to run, such as ids, offsets and times, so those of the real proxy and of ours can be compared.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from gantrymq import Message
from gantrymq import Producer as RemotingProducer

from ..java import Line
from .scene import (
    INVISIBLE_MS,
    LONG_MS,
    Facts,
    Producer,
    Scene,
    eventually,
    keys_of,
    outcome,
    sha256,
    stored_part,
    told,
)

Case = Callable[[Scene], Facts]

KEYS = [f"key-{number}" for number in range(8)]
DELAY_MS = 3_000
START_SECONDS = 20
LETTER_SECONDS = 60
LISTENER_MS = 75_000  # longer than the minute after which a message of a push consumer is visible without renewals
NAMESPACE = "space"
# The SDKs for Python and Java raise the message of a type that a topic refuses before they send it; so does Go's.
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


def normal(scene: Scene) -> Facts:
    """Send, receive, acknowledge; what is acknowledged does not come again."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    sent = {key: producer.send(topic, key)["id"] for key in KEYS}
    got = consumer.gather(len(KEYS), invisible_ms=INVISIBLE_MS)
    time.sleep(INVISIBLE_MS / 1000)
    return {
        "keys": sorted(keys_of(got)),
        "ids": {one["keys"][0]: one["id"] for one in got} == sent,
        "attempts": [one["attempt"] for one in got],
        "again": consumer.receive(),
    }


def contents(scene: Scene) -> Facts:
    """Every part of a message that an SDK can set."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    text = "snøwfläke ❄ 雪 \t\n"
    properties = {"plain": "value", "ключ": "значение", "with space": "a b", "emoji": "🐎", "number": "1"}
    producer.send(topic, body=text, keys=["first", "second", "третий"], tag="täg", properties=properties)
    producer.send(topic, body="\0binary\0")
    return {"messages": sorted((told(one) for one in consumer.gather(2)), key=str)}


def large(scene: Scene) -> Facts:
    """A body of a mebibyte, and one that is larger than a message may be."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    text, size = "0123456789abcdef-", 1 << 20
    producer.send(topic, "large", body=text, size=size)
    [got] = consumer.gather(1)
    body = (text * size)[:size].encode()
    too_large = outcome(lambda: producer.send(topic, "too-large", body=text, size=(4 << 20) + 1))
    return {"size": got["size"], "whole": got["sha256"] == sha256(body), "too large": too_large}


def batches(scene: Scene) -> Facts:
    """A receive returns at most as many messages as it asks for."""
    topic, group = scene.topic(queues=1), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    keys = [f"{number:02}" for number in range(20)]
    for key in keys:
        producer.send(topic, key)
    scene.stored(topic, len(keys))
    got, sizes = [], []
    while len(got) < len(keys):
        received = consumer.gather(1, max=6)
        sizes.append(len(received))
        got += received
    return {"keys": keys_of(got) == keys, "most": max(sizes)}


def long_poll(scene: Scene) -> Facts:
    """A receive that waits gets the message that comes meanwhile."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    producer.send(topic, "before")
    first = consumer.gather(1)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(consumer.receive)
        time.sleep(1)
        producer.send(topic, "meanwhile")
        return {"keys": keys_of(first + waiting.result())}


def slow_listener(scene: Scene) -> Facts:
    """A message in work for longer than its invisible time is not delivered again, and is acknowledged at last.

    A proxy renews the receipt handle meanwhile. When the consumer leaves, a message that it had not acknowledged would
    be visible again at once.
    """
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.push(group, topic, consumeMs=LISTENER_MS)
    for key in KEYS[:3]:
        producer.send(topic, key)
    consumer.inbox(3)
    got = consumer.inbox(4, timeout_ms=LISTENER_MS + 10_000)
    consumer.close()
    heir = scene.consumer(group, topic)
    left = heir.first_receive() + heir.receive() + heir.receive()
    return {"received": sorted((one["keys"][0], one["attempt"]) for one in got), "left": keys_of(left)}


def shared_group(scene: Scene) -> Facts:
    """Two push consumers of a group get each message once between them."""
    topic, group = scene.topic(), scene.group()
    consumers = [scene.push(group, topic) for _ in range(2)]
    producer, keys = scene.producer(topic), [f"{number:02}" for number in range(40)]
    for key in keys:
        producer.send(topic, key)

    def got() -> list[str]:
        return sorted(key for consumer in consumers for key in keys_of(consumer.inbox(0)))

    eventually(got, lambda found: len(found) >= len(keys))
    time.sleep(2)
    facts = {"each once": got() == keys}
    for consumer in consumers:
        consumer.close()
    return facts


def several_topics(scene: Scene) -> Facts:
    """A consumer of two topics gets the messages of both."""
    topics, group = [scene.topic(suffix) for suffix in ("-a", "-b")], scene.group()
    producer, consumer = scene.producer(*topics), scene.consumer(group, *topics)
    for key in KEYS:
        producer.send(topics[int(key[-1]) % 2], key)
    got = consumer.gather(len(KEYS))
    return {"topics": sorted((one["keys"][0], topics.index(one["topic"])) for one in got)}


def two_groups(scene: Scene) -> Facts:
    """Each group gets every message. The second one is made after the messages were sent."""
    topic, first = scene.topic(queues=1), scene.group("-first")
    producer, consumer = scene.producer(topic), scene.consumer(first, topic)
    for key in KEYS:
        producer.send(topic, key)
    got = consumer.gather(len(KEYS))
    late = scene.consumer(scene.group("-late"), topic).gather(len(KEYS))
    return {"first": sorted(keys_of(got)), "late": sorted(keys_of(late))}


def push_many(scene: Scene) -> Facts:
    """A push consumer's threads get each of many messages once."""
    topic, group = scene.topic(queues=4), scene.group()
    producer, consumer = scene.producer(topic), scene.push(group, topic)
    keys = [f"{number:03}" for number in range(200)]
    for key in keys:
        producer.send(topic, key)
    consumer.inbox(len(keys))
    got = consumer.inbox(len(keys) + 1, timeout_ms=3_000)
    consumer.close()
    return {"each once": sorted(keys_of(got)) == keys, "attempts": sorted({one["attempt"] for one in got})}


def handed_over(scene: Scene) -> Facts:
    """Another consumer of the group goes on after a push consumer has been closed."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.push(group, topic)
    producer.send(topic, "before")
    before = consumer.inbox(1)
    consumer.close()
    producer.send(topic, "after")
    after = scene.consumer(group, topic).gather(1)
    return {"before": keys_of(before), "after": [(one["keys"][0], one["attempt"]) for one in after]}


def push(scene: Scene) -> Facts:
    """A push consumer gets every message once."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.push(group, topic)
    for key in KEYS:
        producer.send(topic, key)
    consumer.inbox(len(KEYS))
    got = consumer.inbox(len(KEYS) + 1, timeout_ms=3_000)
    consumer.close()
    return {"keys": sorted(keys_of(got)), "attempts": [one["attempt"] for one in got]}


def push_retry(scene: Scene) -> Facts:
    """A message whose listener fails twice comes again, as the group's retry policy says."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.push(group, topic, fail=2)
    for key in KEYS[:3]:
        producer.send(topic, key)
    consumer.inbox(9)
    got = consumer.inbox(10, timeout_ms=5_000)
    consumer.close()
    return {"attempts": {key: [one["attempt"] for one in got if one["keys"] == [key]] for key in KEYS[:3]}}


def push_tags(scene: Scene) -> Facts:
    """A push consumer with a tag filter."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.push(group, topic, filter="one || two")
    for key, tag in zip(KEYS[:6], ("one", "two", "three") * 2, strict=True):
        producer.send(topic, key, tag=tag)
    consumer.inbox(4)
    got = consumer.inbox(5, timeout_ms=3_000)
    consumer.close()
    return {"tags": sorted((one["keys"][0], one["tag"]) for one in got)}


def fifo(scene: Scene) -> Facts:
    """A push consumer of an orderly group gets the messages of a message group in their order."""
    topic, group = scene.topic(kind="FIFO", queues=4), scene.group(orderly=True)
    producer, consumer = scene.producer(topic), scene.push(group, topic)
    for number in range(24):
        producer.send(topic, f"{number:02}", group=f"group-{number % 3}")
    got = consumer.inbox(24)
    consumer.close()
    groups = sorted({one["group"] for one in got})
    return {"order": {name: keys_of(one for one in got if one["group"] == name) for name in groups}}


def fifo_retry(scene: Scene) -> Facts:
    """A message of an orderly group that fails holds up those behind it."""
    topic, group = scene.topic(kind="FIFO", queues=1), scene.group(orderly=True)
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    for key in KEYS[:3]:
        producer.send(topic, key, group="only")
    scene.stored(topic, 3)
    first = consumer.gather(1, ack=False, max=1, invisible_ms=INVISIBLE_MS)
    while_hidden = consumer.receive(max=1)
    again = consumer.gather(1, ack=False, max=1, invisible_ms=LONG_MS)
    consumer.ack(again[0])
    rest = consumer.gather(2)
    received = [*first, *again, *rest]
    return {"order": [(one["keys"][0], one["attempt"]) for one in received], "while hidden": keys_of(while_hidden)}


def fifo_push_retry(scene: Scene) -> Facts:
    """A push consumer of an orderly group tries a message again before it gets the next one of its message group."""
    topic, group = scene.topic(kind="FIFO", queues=1), scene.group(orderly=True)
    producer, consumer = scene.producer(topic), scene.push(group, topic, fail=2)
    for key in KEYS[:3]:
        producer.send(topic, key, group="only")
    got = consumer.inbox(9)
    consumer.close()
    return {"keys": keys_of(got)}


def delay(scene: Scene) -> Facts:
    """A delayed message comes at its time and not before."""
    topic, group = scene.topic(kind="DELAY"), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    at_ms = (int(time.time()) + 1) * 1000 + DELAY_MS
    producer.send(topic, "delayed", deliverAtMs=at_ms)
    [got] = consumer.gather(1)
    return {
        "keys": got["keys"],
        "early": got["atMs"] < at_ms,
        "delivery time": None if got["deliverAtMs"] is None else got["deliverAtMs"] - at_ms,
        "attempt": got["attempt"],
    }


def delay_limits(scene: Scene) -> Facts:
    """A time in the past is now; one that is too far away is refused."""
    topic, group = scene.topic(kind="DELAY"), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    now_ms = int(time.time() * 1000)
    past = outcome(lambda: producer.send(topic, "past", deliverAtMs=now_ms - 60_000))
    far = outcome(lambda: producer.send(topic, "far", deliverAtMs=now_ms + 40 * 24 * 3600 * 1000))
    return {"past": past, "far": far, "keys": keys_of(consumer.gather(1))}


def recall(scene: Scene) -> Facts:
    """A recalled message does not come; a second recall, and a forged handle, have an answer too."""
    topic, group = scene.topic(kind="DELAY"), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    at_ms = (int(time.time()) + 1) * 1000
    recalled = producer.send(topic, "recalled", deliverAtMs=at_ms + 12_000)
    answer = producer.recall(topic, recalled["recall"])
    producer.send(topic, "kept", deliverAtMs=at_ms + 14_000)
    got = consumer.gather(1)
    return {
        "id": answer["id"] == recalled["id"],
        "keys": keys_of(got + consumer.receive()),
        "forged": outcome(lambda: producer.recall(topic, "forged")),
        "late": outcome(lambda: producer.recall(topic, recalled["recall"])),
    }


def transaction(scene: Scene) -> Facts:
    """What is committed comes, what is rolled back does not."""
    topic, group = scene.topic(kind="TRANSACTION"), scene.group()
    producer, consumer = scene.producer(topic, check="UNKNOWN"), scene.consumer(group, topic)
    for resolution in ("ROLLBACK", "COMMIT"):
        producer.send(topic, resolution, transaction=f"{scene.case}-{resolution}", tag="tagged")
    before = consumer.receive(invisible_ms=INVISIBLE_MS)
    for resolution in ("ROLLBACK", "COMMIT"):
        producer.end(f"{scene.case}-{resolution}", resolution)
    got = consumer.gather(1)
    return {"before": keys_of(before), "messages": [told(one) for one in got + consumer.receive()]}


def orphans(scene: Scene) -> Facts:
    """The broker asks the producer about half messages without a decision, and follows its answer."""
    facts: Facts = {}
    for resolution in ("COMMIT", "ROLLBACK"):
        topic, group = scene.topic(f"-{resolution}", "TRANSACTION"), scene.group(f"-{resolution}")
        producer, consumer = scene.producer(topic, check=resolution), scene.consumer(group, topic)
        producer.send(topic, resolution, transaction=f"{scene.case}-{resolution}")
        asked = eventually(producer.checked_keys, bool)
        got = consumer.gather(1) if resolution == "COMMIT" else consumer.receive()
        # The real broker delivers twice what it checked again before the decision came.
        facts[resolution] = {"asked": asked[0], "keys": sorted(set(keys_of(got)))}
        producer.close()
    return facts


def decided_twice(scene: Scene) -> Facts:
    """The producer answers a check with a rollback, and commits afterwards."""
    topic, group = scene.topic(kind="TRANSACTION"), scene.group()
    producer, consumer = scene.producer(topic, check="ROLLBACK"), scene.consumer(group, topic)
    producer.send(topic, "twice", transaction=scene.case)
    eventually(producer.checked_keys, bool)
    time.sleep(1)  # for the answer to the check
    end = outcome(lambda: producer.end(scene.case, "COMMIT"))
    return {"end": end, "keys": keys_of(consumer.receive())}


def tags(scene: Scene) -> Facts:
    """A filter by tags; "AaAa" and "BBBB" have the same hash."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic, filter="AaAa || other")
    for key, tag in zip(KEYS[:4], ("AaAa", "BBBB", "other", "none"), strict=True):
        producer.send(topic, key, tag=tag)
    producer.send(topic, "without")
    got = consumer.gather(2)
    return {"tags": sorted((one["keys"][0], one["tag"]) for one in got + consumer.receive())}


def sql(scene: Scene) -> Facts:
    """A filter by properties, and one that is no SQL."""
    topic, group = scene.topic(), scene.group()
    producer = scene.producer(topic)
    consumer = scene.consumer(group, topic, sql="number > 1 AND color IN ('red', 'blue') AND TAGS = 'tagged'")
    for number, color in enumerate(("red", "red", "red", "green", "blue")):
        producer.send(topic, str(number), tag="tagged", properties={"number": str(number), "color": color})
    producer.send(topic, "5", tag="other", properties={"number": "5", "color": "red"})
    got = consumer.gather(2)

    def damaged() -> None:
        scene.consumer(scene.group("-damaged"), topic, sql="number >").gather(1)

    return {"keys": sorted(keys_of(got + consumer.receive())), "damaged": outcome(damaged)}


def redelivery(scene: Scene) -> Facts:
    """What is not acknowledged comes again after its invisible time, and not before."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    producer.send(topic, "again", tag="tagged", properties={"some": "thing"})
    [first] = consumer.gather(1, ack=False, invisible_ms=INVISIBLE_MS)
    [second] = consumer.gather(1, ack=False, invisible_ms=INVISIBLE_MS)
    [third] = consumer.gather(1)
    waited_ms = second["atMs"] - first["atMs"], third["atMs"] - second["atMs"]
    return {
        "messages": [told(one) for one in (first, second, third)],
        "one id": len({one["id"] for one in (first, second, third)}),
        "early": [waited < INVISIBLE_MS - 500 for waited in waited_ms],  # a message is popped before it is received
        "late acknowledgement": outcome(lambda: consumer.ack(first)),
    }


def invisible_time(scene: Scene) -> Facts:
    """A changed invisible time counts from the change, and the handle that it gives is the one to acknowledge."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    producer.send(topic, "sooner")
    [first] = consumer.gather(1, ack=False)
    changed_ms = int(time.time() * 1000)
    consumer.invisible(first, 4_000)
    [second] = consumer.gather(1, ack=False, invisible_ms=INVISIBLE_MS)
    consumer.invisible(second, LONG_MS)
    consumer.ack(second)
    return {
        "attempts": [first["attempt"], second["attempt"]],
        "early": second["atMs"] - changed_ms < 4_000 - 500,
        "too short": outcome(lambda: consumer.receive(invisible_ms=1_000)),
        "too long": outcome(lambda: consumer.receive(invisible_ms=13 * 3600 * 1000)),
        "again": keys_of(consumer.receive()),
    }


def invisible_twice(scene: Scene) -> Facts:
    """The invisible time is changed twice; the last change counts, and the message can be acknowledged after it."""
    topic, group = scene.topic(), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    producer.send(topic, "longer")
    [first] = consumer.gather(1, ack=False, invisible_ms=INVISIBLE_MS)
    consumer.invisible(first, INVISIBLE_MS)
    consumer.invisible(first, LONG_MS)
    time.sleep(INVISIBLE_MS / 1000)
    hidden = consumer.receive() + consumer.receive()
    consumer.invisible(first, 1_000)
    [second] = consumer.gather(1)
    return {"hidden": keys_of(hidden), "again": (second["keys"], second["attempt"], second["id"] == first["id"])}


def simple_dead_letters(scene: Scene) -> Facts:
    """A message that a simple consumer never acknowledges is a dead letter, which can be received like any message."""
    topic, group = scene.topic(), scene.group(retries=1)
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    producer.send(topic, "dead", tag="tagged", properties={"some": "thing"})
    received = [consumer.gather(1, ack=False, invisible_ms=INVISIBLE_MS)[0]["attempt"] for _ in range(2)]
    deadline = time.monotonic() + LETTER_SECONDS
    rest: list[Line] = []
    while not (letters := scene.now_stored(f"%DLQ%{group}")) and time.monotonic() < deadline:
        rest += consumer.receive()
    reader = outcome(lambda: scene.consumer(scene.group("-reader"), f"%DLQ%{group}").first_receive())
    parts = [stored_part(one, scene.sdk) for one in letters]
    return {"attempts": received, "rest": keys_of(rest), "letters": parts, "reader": reader}


def dead_letters(scene: Scene) -> Facts:
    """A message that fails more often than its group allows is a dead letter."""
    topic, group = scene.topic(), scene.group(retries=1)
    producer, consumer = scene.producer(topic), scene.push(group, topic, fail=99)
    producer.send(topic, "dead", tag="tagged", properties={"some": "thing"})
    consumer.inbox(2)
    letters = scene.stored(f"%DLQ%{group}", 1)
    got = consumer.inbox(3, timeout_ms=4_000)
    consumer.close()
    return {"attempts": [one["attempt"] for one in got], "letters": [stored_part(one, scene.sdk) for one in letters]}


def fifo_dead_letters(scene: Scene) -> Facts:
    """A message of an orderly group that fails too often is a dead letter, and the next one comes."""
    topic, group = scene.topic(kind="FIFO", queues=1), scene.group(orderly=True, retries=1)
    producer, consumer = scene.producer(topic), scene.push(group, topic, fail=99)
    producer.send(topic, "first", group="only")
    producer.send(topic, "second", group="only")
    letters = scene.stored(f"%DLQ%{group}", 2)
    got = consumer.inbox(1)
    consumer.close()
    parts = sorted((stored_part(one, scene.sdk) for one in letters), key=lambda one: str(one["body"]))
    return {"keys": list(dict.fromkeys(keys_of(got))), "letters": parts}


def wrong_types(scene: Scene) -> Facts:
    """Each type of message to a topic of each type."""

    def send(producer: Producer, topic: str, kind: str) -> None:
        if kind == "TRANSACTION":
            producer.send(topic, kind, transaction=f"{scene.case}-{topic}")
            producer.end(f"{scene.case}-{topic}", "ROLLBACK")
        else:
            part = {"NORMAL": {}, "FIFO": {"group": "g"}, "DELAY": {"deliverAtMs": int(time.time() * 1000) + 1000}}
            producer.send(topic, kind, **part[kind])

    facts: Facts = {}
    for of in TYPES:
        topic = scene.topic(f"-{of}", of)
        producer = scene.producer(topic, check="ROLLBACK")
        facts |= {f"{kind} to {of}": outcome(partial(send, producer, topic, kind)) for kind in TYPES}
    return facts


def type_changed(scene: Scene) -> Facts:
    """A topic changes its type, which the SDK does not know yet: the server refuses the message."""
    topic = scene.topic()
    producer = scene.producer(topic)
    producer.send(topic, "before")
    scene.topic(kind="FIFO")
    return {"send": outcome(lambda: producer.send(topic, "after"))}


def unknown_names(scene: Scene) -> Facts:
    """A topic that is not there, and names that cannot be."""
    known = scene.topic()
    producer = scene.producer(known)
    producer.send(known, "known")

    def receive(group: str, topic: str) -> int:
        consumer = scene.consumer(group, topic)
        return len(consumer.gather(1))

    absent, group = f"absent-{scene.sdk}", scene.group("-known")
    return {
        "producer of an unknown topic": outcome(lambda: scene.producer(absent)),
        "send to an unknown topic": outcome(lambda: producer.send(absent, "key")),
        "receive of an unknown topic": outcome(lambda: receive(group, absent)),
        "send to a topic with a bad name": outcome(lambda: producer.send("bad%name", "key")),
        "send to a system topic": outcome(lambda: producer.send("RMQ_SYS_TRANS_HALF_TOPIC", "key")),
    }


def unknown_group(scene: Scene) -> Facts:
    """A group that is not there gets no settings: some SDKs wait for them without end."""
    topic = scene.topic()
    scene.producer(topic).send(topic, "key")
    absent = f"absent-group-{scene.sdk}"
    facts: Facts = {"start": outcome(lambda: scene.consumer(absent, topic, seconds=START_SECONDS))}
    if facts["start"] == "done":
        consumer = scene.consumer(absent, topic)
        time.sleep(2)  # for settings, if any come
        facts["receive"] = outcome(consumer.receive)
    return facts


def priority(scene: Scene) -> Facts:
    """The priority of a message is that of its receiver."""
    topic, group = scene.topic(kind="PRIORITY"), scene.group()
    producer, consumer = scene.producer(topic), scene.consumer(group, topic)
    producer.send(topic, "high", priority=1)
    return {"messages": [told(one) for one in consumer.gather(1)]}


def bad_messages(scene: Scene) -> Facts:
    """Parts of a message that the server refuses."""
    topic = scene.topic()
    producer = scene.producer(topic)
    fifo_producer = scene.producer(ordered := scene.topic("-fifo", "FIFO"))
    wrong: dict[str, dict[str, Any]] = {
        "a long property": {"properties": {"long": "x" * (17 << 10)}},
        "many properties": {"properties": {f"p{number}": "x" for number in range(129)}},
        "a property of the system": {"properties": {"KEYS": "x"}},
        "a blank key": {"keys": [" "]},
        "a tag with a bar": {"tag": "a|b"},
        "no body": {"body": ""},
        "a control character": {"properties": {"control\u0001": "x"}},
    }
    facts: Facts = {
        name: outcome(partial(producer.send, topic, **{"body": "x"} | part)) for name, part in wrong.items()
    }
    facts["a long message group"] = outcome(lambda: fifo_producer.send(ordered, "key", group="g" * 65))
    return facts


def to_remoting(scene: Scene) -> Facts:
    """Messages of the SDK as a remoting client reads them."""
    topic, ordered = scene.topic(), scene.topic("-fifo", "FIFO")
    producer = scene.producer(topic, ordered)
    producer.send(topic, body="text", keys=["one", "two"], tag="tagged", properties={"some": "thing", "ключ": "❄"})
    producer.send(ordered, "ordered", group="group")
    stored = [*scene.stored(topic, 1), *scene.stored(ordered, 1)]
    return {"messages": [stored_part(one, scene.sdk) for one in stored]}


def from_remoting(scene: Scene) -> Facts:
    """Messages of a remoting producer as the SDK receives them; one comes in a batch, one is delayed."""
    topic, group = scene.topic(), scene.group()
    with RemotingProducer(scene.server.namesrv, send_msg_timeout_ms=20_000) as producer:
        producer.send(Message(topic, b"text", tags="tagged", keys=["one", "two"], properties={"some": "thing"}))
        producer.send_batch([Message(topic, b"batch", keys=["batch"])])
        producer.send(Message(topic, b"late", keys=["late"], delay_level=1))
    got = scene.consumer(group, topic).gather(3)
    return {"messages": sorted((told(one) for one in got), key=lambda one: one["keys"])}


def namespaces(scene: Scene) -> Facts:
    """The namespace of an SDK's configuration is not a part of the names of topics and groups at the broker.

    A topic that a remoting client made in a namespace has another name, and its messages have that namespace.
    """
    topic, group, other = scene.topic(), scene.group(), scene.group("-other")
    scene.producer(topic, namespace=NAMESPACE).send(topic, "inside")
    scene.producer(topic).send(topic, "outside")
    stored = [(message.topic == topic, message.properties["KEYS"]) for message in scene.stored(topic, 2)]
    inside = scene.consumer(group, topic, namespace=NAMESPACE).gather(2)
    same_group = scene.consumer(group, topic).first_receive()
    outside = scene.consumer(other, topic).gather(2)

    remote = scene.topic(namespace=NAMESPACE)
    with RemotingProducer(scene.server.namesrv, namespace=NAMESPACE, send_msg_timeout_ms=20_000) as producer:
        producer.send(Message(topic, b"remoting", keys=["remoting"]))
    wanted = {"with": (topic, NAMESPACE), "without": (remote, "")}
    seen = {name: _seen_by(scene, *names) for name, names in wanted.items()}
    return {
        "stored": sorted(stored),
        "stored in the namespace": [message.properties["KEYS"] for message in scene.stored(remote, 1)],
        "inside": sorted((one["keys"][0], one["topic"] == topic) for one in inside),
        "outside": sorted((one["keys"][0], one["topic"] == topic) for one in outside),
        "same group without the namespace": keys_of(same_group),
        "a topic of the namespace": seen,
    }


def _seen_by(scene: Scene, topic: str, namespace: str) -> Facts:
    """What a new group gets of a topic: the keys, the names of the topics, and the answers to acknowledgements."""
    consumer = scene.consumer(scene.group(f"-seen-{namespace}"), topic, namespace=namespace)
    got: list[Line] = []

    def receive() -> None:
        got.extend(consumer.gather(1, ack=False))

    facts: Facts = {"receive": outcome(receive)}
    topics = [one["topic"].replace(f"-{scene.sdk}", "-SDK") for one in got]
    acks = [outcome(partial(consumer.ack, one)) for one in got]
    return facts | {
        "keys": sorted(set(keys_of(got))),
        "topics": sorted(set(topics)),
        "acks": sorted(set(acks), key=str),
    }


def compressed(scene: Scene) -> Facts:
    """The compressed message of a remoting producer; Node's SDK cannot unpack it."""
    topic, group = scene.topic(), scene.group()
    with RemotingProducer(scene.server.namesrv, send_msg_timeout_ms=20_000) as producer:
        producer.send(Message(topic, b"x" * 100_000, keys=["packed"]))
    consumer, got = scene.consumer(group, topic), list[Line]()
    facts: Facts = {"receive": outcome(lambda: got.extend(consumer.gather(1)))}
    return facts | {"messages": [told(one) for one in got]}


CASES: dict[str, Case] = {
    case.__name__.replace("_", "-"): case
    for case in (
        normal, contents, large, batches, several_topics, two_groups, long_poll, push, push_many, push_retry,
        push_tags, slow_listener, shared_group, handed_over, fifo, fifo_retry, fifo_push_retry, delay,
        delay_limits, recall, transaction, orphans, decided_twice, tags, sql, redelivery, invisible_time,
        invisible_twice, dead_letters, simple_dead_letters, fifo_dead_letters, wrong_types, type_changed,
        unknown_names, unknown_group, priority, bad_messages, to_remoting, from_remoting, namespaces,
        compressed,
    )
}  # fmt: skip
# Go's SDK has neither recalls nor priorities, and goes on with the next message of a group when one fails. Node's
# often hangs at its start with more than one topic. A proxy of its own knows the type of a topic for 20 s.
LACKING = {
    ("recall", "go"), ("priority", "go"), ("fifo-push-retry", "go"), ("several-topics", "node"),
    ("type-changed", "cluster"), ("type-changed", "our-proxy"),
}  # fmt: skip
