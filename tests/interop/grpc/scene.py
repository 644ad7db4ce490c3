"""What a case works with: a server, one SDK's program, an administration, and names of its own."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gantrymq import AdminClient, PullClient
from gantrymq.client.namespace import wrap_namespace
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import MQClientError
from gantrymq.model.message import StoredMessage
from gantrymq.remoting.bodies.group import CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig

from ..java import Line
from .sdks import CALL_SECONDS, SdkClient, SdkError
from .servers import Server

Facts = dict[str, Any]
T = TypeVar("T")

AWAIT_MS = 5_000  # the shortest long poll that the real proxy allows
INVISIBLE_MS = 10_000  # the shortest invisible time of a receive
LONG_MS = 300_000  # longer than any case takes
SECONDS = 100  # how long a case waits for what must come
RETRIES_AFTER_MS = [1_000] * 16


# Properties of stored messages whose values differ from run to run.
VOLATILE = {
    "UNIQ_KEY", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID", "1ST_POP_TIME", "POP_CK", "__BORNHOST", "BORN_TIMESTAMP",
    "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DELIVER_MS", "__transactionId__", "CLUSTER", "CLIENT_HOST",
}  # fmt: skip


@dataclass
class Scene:
    """One case of one SDK at one server."""

    case: str
    sdk: str
    server: Server
    client: SdkClient
    admin: AdminClient
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def topic(self, suffix: str = "", kind: str = "NORMAL", queues: int = 2, namespace: str = "") -> str:
        """A new topic of the case with a message type; its name in a namespace is that of a remoting client."""
        name = wrap_namespace(namespace, f"{self.case}-{self.sdk}{suffix}")
        attributes = {"+message.type": kind}
        settings: dict[str, Any] = {"read_queue_nums": queues, "write_queue_nums": queues, "attributes": attributes}
        carry_out(lambda: self.admin.create_topic(name, **settings))
        return name

    def group(self, suffix: str = "", *, orderly: bool = False, retries: int = 16) -> str:
        """A new consumer group of the case, whose messages come again a second after a failure."""
        name = f"group-{self.case}-{self.sdk}{suffix}"
        policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=RETRIES_AFTER_MS))
        config = SubscriptionGroupConfig(
            consume_message_orderly=orderly, retry_max_times=retries, group_retry_policy=policy
        )
        carry_out(lambda: self.admin.create_subscription_group(name, config))
        return name

    def producer(self, *topics: str, **options: Any) -> Producer:
        name = self._name("producer")
        self.client.call("producer", name=name, topics=list(topics), **options)
        return Producer(self, name)

    def consumer(
        self,
        group: str,
        *topics: str,
        filter: str | None = None,
        sql: str | None = None,
        seconds: float = CALL_SECONDS,
        **options: Any,
    ) -> Consumer:
        name = self._name("consumer")
        arguments = {"group": group, "awaitMs": AWAIT_MS, "subscriptions": subscribed(topics, filter, sql)} | options
        self.client.call("consumer", name=name, seconds=seconds, **arguments)
        return Consumer(self, name)

    def push(self, group: str, *topics: str, fail: int = 0, filter: str | None = None, **options: Any) -> Push:
        name = self._name("push")
        subscriptions = subscribed(topics, filter, None)
        self.client.call("push", name=name, group=group, subscriptions=subscriptions, fail=fail, **options)
        return Push(self, name)

    def stored(self, topic: str, count: int) -> list[StoredMessage]:
        """The messages of a topic as a remoting client reads them, as soon as there are as many."""
        return eventually(lambda: self.now_stored(topic), lambda found: len(found) >= count)

    def now_stored(self, topic: str) -> list[StoredMessage]:
        """The messages of a topic as a remoting client reads them; none of a topic without a route."""
        try:
            return everything(self.server.namesrv, topic)
        except MQClientError:
            return []

    def _name(self, kind: str) -> str:
        return f"{self.case}-{kind}-{next(self._numbers)}"


@dataclass(frozen=True)
class Producer:
    """A producer of the scene's SDK."""

    scene: Scene
    name: str

    def send(self, topic: str, key: str = "", *, transaction: str | None = None, **message: Any) -> Line:
        """Send a message whose body is its key, unless it has another."""
        wanted = {"topic": topic, "body": key or "body"} | ({"keys": [key]} if key else {}) | message
        arguments = {} if transaction is None else {"transaction": transaction}
        return self.scene.client.call("send", client=self.name, message=wanted, **arguments)

    def end(self, transaction: str, resolution: str) -> None:
        self.scene.client.call("end", transaction=transaction, resolution=resolution)

    def recall(self, topic: str, handle: str) -> Line:
        return self.scene.client.call("recall", client=self.name, topic=topic, handle=handle)

    def checked_keys(self) -> list[list[str]]:
        keys: list[list[str]] = self.scene.client.call("checks", client=self.name)["keys"]
        return keys

    def close(self) -> None:
        self.scene.client.call("close", client=self.name)


@dataclass(frozen=True)
class Consumer:
    """A simple consumer of the scene's SDK."""

    scene: Scene
    name: str

    def receive(self, max: int = 32, invisible_ms: int = LONG_MS) -> list[Line]:
        """One receive, which waits for AWAIT_MS at most."""
        result = self.scene.client.call("receive", client=self.name, max=max, invisibleMs=invisible_ms)
        messages: list[Line] = result["messages"]
        return messages

    def first_receive(self, max: int = 32, invisible_ms: int = LONG_MS) -> list[Line]:
        """A receive that is repeated while the real proxy fails it, because it came before the client's settings."""
        while True:
            try:
                return self.receive(max, invisible_ms)
            except SdkError as error:
                if not error.has_no_settings:
                    raise
                time.sleep(0.1)

    def gather(self, count: int, *, ack: bool = True, max: int = 32, invisible_ms: int = LONG_MS) -> list[Line]:
        """What receives return until there are as many."""
        got: list[Line] = []
        deadline = time.monotonic() + SECONDS
        while len(got) < count:
            assert time.monotonic() < deadline, f"only {[one['keys'] for one in got]} came, not {count} messages"
            received = self.first_receive(max, invisible_ms)
            got += received
            for message in received if ack else ():
                self.ack(message)
        return got

    def ack(self, message: Line) -> None:
        self.scene.client.call("ack", client=self.name, handle=message["handle"])

    def invisible(self, message: Line, ms: int) -> None:
        self.scene.client.call("invisible", client=self.name, handle=message["handle"], ms=ms)

    def close(self) -> None:
        self.scene.client.call("close", client=self.name)


@dataclass(frozen=True)
class Push:
    """A push consumer of the scene's SDK; it notes all that comes."""

    scene: Scene
    name: str

    def inbox(self, count: int, timeout_ms: int = SECONDS * 1000) -> list[Line]:
        """All messages that came, as soon as there are as many, or when the time is over."""
        result = self.scene.client.call("inbox", client=self.name, count=count, timeoutMs=timeout_ms)
        messages: list[Line] = result["messages"]
        return messages

    def close(self) -> None:
        self.scene.client.call("close", client=self.name)


def subscribed(topics: Iterable[str], filter: str | None, sql: str | None) -> list[Line]:
    kind, expression = ("SQL92", sql) if sql is not None else ("TAG", filter or "*")
    return [{"topic": topic, "type": kind, "expression": expression} for topic in topics]


def outcome(call: Callable[[], object]) -> str | int:
    """The code of the server's status, the type of what the SDK itself raised, "no answer", or "done"."""
    try:
        call()
    except TimeoutError:
        return "no answer"
    except SdkError as error:
        return error.kind if error.code is None else error.code
    return "done"


def told(message: Line) -> Line:
    """What a receiver sees of a message, without ids, times and the topic."""
    kept = ("tag", "keys", "group", "attempt", "size", "sha256", "priority")
    return {name: message[name] for name in kept} | {"properties": _stable(message["properties"], "")}


def stored_part(message: StoredMessage, sdk: str) -> Line:
    """Body and properties of a stored message: values that differ from run to run are ``*``."""
    properties = _stable(message.properties, sdk)
    if "KEYS" in properties:
        properties["KEYS"] = " ".join(sorted(properties["KEYS"].split()))  # Python's SDK has a set of them
    return {"body": message.body.decode(), "properties": properties}


def _stable(properties: Mapping[str, str], sdk: str) -> dict[str, str]:
    """Without what differs from run to run, and with SDK for the name of the SDK in topics and groups."""
    return {
        name: "*" if name in VOLATILE else value.replace(f"-{sdk}", "-SDK")
        for name, value in properties.items()
        if name != "TRANSACTION_CHECK_TIMES"  # it depends on how soon the decision comes
    }


def keys_of(messages: Iterable[Line]) -> list[str]:
    """The key of each message, in their order."""
    return [key for message in messages for key in message["keys"]]


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def everything(namesrv: str, topic: str) -> list[StoredMessage]:
    with PullClient(namesrv) as client:
        return [
            message
            for queue in client.queues(topic)
            for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue))
            for message in decode_records(pulled.records)
        ]


def carry_out(order: Callable[[], None]) -> None:
    """Carry out an order of the administration. A real broker on a busy machine loses its route now and then."""

    def is_carried_out() -> bool:
        try:
            order()
        except MQClientError:
            return False
        return True

    eventually(is_carried_out, bool)


def eventually(get: Callable[[], T], enough: Callable[[T], object], seconds: float = SECONDS) -> T:
    """What ``get`` returns as soon as it is enough."""
    deadline = time.monotonic() + seconds
    while not enough(found := get()):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.1)
    return found
