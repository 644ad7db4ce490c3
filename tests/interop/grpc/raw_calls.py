"""The calls of test_raw_answers, in groups. A group yields (name, answer) pairs, which can be compared between servers.

An answer is text without ids, addresses and times. The calls need no SDK, so they may be what no SDK sends.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from gantrymq import AdminClient
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import ClientType, Code, GrpcMessageType
from gantrymq.grpc.protocol.messages import set_ms
from gantrymq.remoting.bodies.group import ExponentialRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig
from grpc_client import GrpcClient, message

from .scene import carry_out, eventually

Answers = Iterator[tuple[str, str]]

TYPES = {"t": "NORMAL", "d": "DELAY", "f": "FIFO", "x": "TRANSACTION", "p": "PRIORITY"}
PERMISSIONS = {"read-only": 4, "write-only": 2, "closed": 0}
GROUPS = {
    "g": SubscriptionGroupConfig(),
    "ordered": SubscriptionGroupConfig(consume_message_orderly=True),
    "few": SubscriptionGroupConfig(retry_max_times=2),
    "never": SubscriptionGroupConfig(retry_max_times=-1),
    "off": SubscriptionGroupConfig(consume_enable=False),
    "exponential": SubscriptionGroupConfig(
        group_retry_policy=GroupRetryPolicy(
            type="EXPONENTIAL",
            exponential_retry_policy=ExponentialRetryPolicy(initial=2_000, max=60_000, multiplier=3),
        )
    ),
}
BAD_NAMES = {"empty": "", "space": "b d", "long": "t" * 128}
HOUR_MS = 3_600_000
MIB = 1 << 20


@dataclass
class Stage:
    """A server with the topics and groups above, and clients of it until ``close``."""

    endpoints: str
    admin: AdminClient
    clients: ExitStack = field(default_factory=ExitStack)

    def prepare(self) -> None:
        for name, kind in TYPES.items():
            self.topic(name, {"+message.type": kind})
        self.topic("more-to-read", read=4)
        self.topic("more-to-write", write=4)
        for name, permission in PERMISSIONS.items():
            self.topic(name, perm=permission)
        for name, config in GROUPS.items():
            carry_out(partial(self.admin.create_subscription_group, name, config))
        client = self.client()
        for name in TYPES:
            request = messages.QueryRouteRequest()
            request.topic.name = name
            set_endpoints(request.endpoints)
            eventually(partial(tried, asked, client, "QueryRoute", request), lambda answer: answer == "OK")

    def topic(
        self, name: str, attributes: dict[str, str] | None = None, *, read: int = 2, write: int = 2, perm: int = 6
    ) -> None:
        settings: dict[str, Any] = {
            "read_queue_nums": read,
            "write_queue_nums": write,
            "perm": perm,
            "attributes": attributes or {},
        }
        carry_out(partial(self.admin.create_topic, name, **settings))

    def client(self, client_id: str = "") -> GrpcClient:
        return self.clients.enter_context(GrpcClient(self.endpoints, client_id))

    def consumer(self, group: str, *topics: str, kind: ClientType = ClientType.SIMPLE_CONSUMER) -> GrpcClient:
        """A consumer whose first receive can come at once: the real proxy has its settings."""
        made = self.client()
        made.be_consumer(group, *topics, kind=kind)
        return made


def settings(stage: Stage) -> Answers:
    """What a client gets for its settings."""

    def subscription(group: str, kind: int = ClientType.PUSH_CONSUMER, **entry: Any) -> Any:
        made = messages.Settings(client_type=kind)
        made.subscription.group.name = group
        subscribed = made.subscription.subscriptions.add()
        subscribed.topic.name = entry.get("topic", "t")
        subscribed.expression.type, subscribed.expression.expression = (
            entry.get("type", 1),
            entry.get("expression", "*"),
        )
        set_ms(made.request_timeout, 3_000)
        return made

    def publishing(*topics: str, kind: int = ClientType.PRODUCER) -> Any:
        made = messages.Settings(client_type=kind)
        made.publishing.SetInParent()
        for topic in topics:
            made.publishing.topics.add(name=topic)
        return made

    sent = {f"consumer of {group}": subscription(group) for group in (*GROUPS, "absent", "CID_RMQ_SYS_x")}
    sent |= {f"consumer of a group with a bad name: {name}": subscription(text) for name, text in BAD_NAMES.items()}
    sent |= {f"producer for a bad name: {name}": publishing(text) for name, text in BAD_NAMES.items()}
    sent |= {
        "simple consumer": subscription("g", ClientType.SIMPLE_CONSUMER),
        "consumer as a producer": subscription("g", ClientType.PRODUCER),
        "consumer without a type": subscription("g", 0),
        "wrong SQL": subscription("g", type=2, expression="a >"),
        "empty SQL": subscription("g", type=2, expression=""),
        "empty tag": subscription("g", expression=""),
        "subscription of a bad topic": subscription("g", topic="b d"),
        "producer": publishing("t"),
        "producer without topics": publishing(),
        "producer for an absent topic": publishing("absent"),
        "producer for a system topic": publishing("TBW102"),
        "producer without a type": publishing("t", kind=0),
        "nothing": messages.Settings(),
    }
    for name, one in sent.items():
        yield name, tried(_answer_to_settings, stage, one)


def _answer_to_settings(stage: Stage, sent: Any) -> str:
    client = stage.client()
    client.open_telemetry()
    client.tell(messages.TelemetryCommand(settings=sent))
    return plain(json.dumps(MessageToDict(client.next_command()), sort_keys=True))


def routes(stage: Stage) -> Answers:
    """Queues of a topic, and those of a consumer."""
    client = stage.client()

    def route(topic: str, *, endpoints: bool = True) -> str:
        request = messages.QueryRouteRequest()
        request.topic.name = topic
        if endpoints:
            set_endpoints(request.endpoints)
        answer = client.call("QueryRoute", request)
        return f"{status(answer.status)} {sorted(_queue(one) for one in answer.message_queues)}"

    def assignment(topic: str, group: str) -> str:
        request = messages.QueryAssignmentRequest()
        request.topic.name, request.group.name = topic, group
        set_endpoints(request.endpoints)
        answer = client.call("QueryAssignment", request)
        return f"{status(answer.status)} {sorted(_queue(one.message_queue) for one in answer.assignments)}"

    topics = (*TYPES, "more-to-read", "more-to-write", *PERMISSIONS, "absent", "SCHEDULE_TOPIC_XXXX", "%RETRY%g")
    for topic in topics:
        yield f"route of {topic}", tried(route, topic)
    for name, topic in BAD_NAMES.items():
        yield f"route of a bad name: {name}", tried(route, topic)
    yield "route without endpoints", tried(route, "t", endpoints=False)
    pairs = [(topic, "g") for topic in ("t", *PERMISSIONS, "absent")]
    pairs += [("t", "ordered"), ("more-to-read", "ordered"), ("t", "absent"), ("t", "")]
    for topic, group in pairs:
        yield f"assignment of {topic} to {group}", tried(assignment, topic, group)


def _queue(queue: Any) -> tuple[int, int, str, str]:
    return queue.id, queue.permission, queue.broker.name, str(list(queue.accept_message_types))


def sends(stage: Stage) -> Answers:
    """One message: bodies, names, properties, types."""
    client, now_ms = stage.client(), int(time.time() * 1000)
    fifo, delay, half, priority = (
        GrpcMessageType.FIFO,
        GrpcMessageType.DELAY,
        GrpcMessageType.TRANSACTION,
        GrpcMessageType.PRIORITY,
    )
    sent = {
        "plain": message("t"),
        "to an absent topic": message("absent"),
        "no body": message("t", b""),
        "the largest body": message("t", bytes(4 * MIB)),
        "a body too large": message("t", bytes(4 * MIB + 1)),
        "a body too large with its properties": _with({"a": "b" * 1_000}, message("t", bytes(4 * MIB - 10))),
        "blank id": message("t", message_id=" "),
        "long id": message("t", message_id="i" * 40_000),
        "blank tag": message("t", tag=" "),
        "tag with a bar": message("t", tag="a|b"),
        "tag with a control character": message("t", tag="a\x01"),
        "long tag": message("t", tag="a" * 17_000),
        "blank key": message("t", keys=[" "]),
        "key with a control character": message("t", keys=["\x02"]),
        "key with a space": message("t", keys=["a b"]),
        "empty property name": _with({"": "v"}),
        "empty property": _with({"n": ""}),
        "property with DEL": _with({"n": "\x7f"}),
        "the longest property": _with({"n": "x" * 16_383}),
        "a property too long": _with({"n": "x" * 16_384}),
        "the most properties": _with({f"p{number}": "x" for number in range(128)}),
        "FIFO without a message group": message("f", kind=fifo),
        "FIFO": message("f", kind=fifo, message_group="g"),
        "NORMAL with a message group": message("f", message_group="g"),
        "FIFO to a NORMAL topic": message("t", kind=fifo),
        "the longest message group": message("f", kind=fifo, message_group="g" * 63),
        "a message group too long": message("f", kind=fifo, message_group="g" * 64),
        "a message group too long in bytes": message("f", kind=fifo, message_group="ж" * 32),
        "blank message group": message("f", kind=fifo, message_group=" "),
        "message group with a control character": message("f", kind=fifo, message_group="\x01"),
        "delayed": message("d", kind=delay, deliver_ms=now_ms + HOUR_MS),
        "delayed into the past": message("d", kind=delay, deliver_ms=now_ms - 100_000),
        "delayed by too much": message("d", kind=delay, deliver_ms=now_ms + 25 * HOUR_MS),
        "DELAY without a time": message("d", kind=delay),
        "NORMAL with a time": message("d", deliver_ms=now_ms + HOUR_MS),
        "a time to a NORMAL topic": message("t", deliver_ms=now_ms + HOUR_MS),
        "a time and a message group": message("d", kind=delay, deliver_ms=now_ms + HOUR_MS, message_group="g"),
        "half": message("x", kind=half),
        "NORMAL to a TRANSACTION topic": message("x"),
        "TRANSACTION to a NORMAL topic": message("t", kind=half),
        "the longest time before a check": message("x", kind=half, recovery_s=3_600),
        "a time before a check too long": message("x", kind=half, recovery_s=3_601),
        "priority": message("p", kind=priority, priority=3),
        "PRIORITY without one": message("p", kind=priority),
        "negative priority": message("p", kind=priority, priority=-1),
        "a type that is none": message("t", message_type=77),
        "no type": message("t", message_type=0),
        "a lite topic": message("t", lite_topic="l"),
    }
    topics = (*PERMISSIONS, "%RETRY%g", "%DLQ%g", "TBW102", "rmq_sys_x")
    sent |= {f"to {topic}": message(topic) for topic in topics}
    sent |= {f"to a bad name: {name}": message(topic) for name, topic in BAD_NAMES.items()}
    sent |= {f"property {name}": _with({name: "1"}) for name in RESERVED}
    for name, one in sent.items():
        yield name, tried(_sent, client, one)


RESERVED = (
    "TAGS", "UNIQ_KEY", "PGROUP", "__BORNHOST", "__SHARDINGKEY", "TRAN_MSG", "DELAY", "INSTANCE_ID", "MSG_REGION",
    "__STARTDELIVERTIME", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC", "INNER_BASE",
    "DLQ_ORIGIN_TOPIC", "BORN_TIMESTAMP", "__transactionId__", "TRANSACTION_CHECK_TIMES", "1ST_POP_TIME", "POP_CK",
    "INNER_NUM", "CONSUME_START_TIME", "CLIENT_HOST", "TIMER_ROLL_LABEL", "TRANSFER_FLAG", "REDELIVER",
)  # fmt: skip


def _with(properties: dict[str, str], sent: Any = None) -> Any:
    sent = message("t") if sent is None else sent
    sent.user_properties.update(properties)
    return sent


def _sent(client: GrpcClient, *sent: Any) -> str:
    answer = client.send(*sent)
    entries = [
        f"{status(entry.status)} {bool(entry.transaction_id)} {bool(entry.recall_handle)}" for entry in answer.entries
    ]
    return f"{status(answer.status)} {entries}"


def batches(stage: Stage) -> Answers:
    """Several messages, or none, in one request."""
    client, later_ms = stage.client(), int(time.time() * 1000) + HOUR_MS
    sent = {
        "none": [],
        "two": [message("t"), message("t")],
        "of two topics": [message("t"), message("f")],
        "of a message group": [message("f", kind=GrpcMessageType.FIFO, message_group="a") for _ in range(2)],
        "of half messages": [message("x", kind=GrpcMessageType.TRANSACTION) for _ in range(2)],
        "of delayed messages": [message("d", kind=GrpcMessageType.DELAY, deliver_ms=later_ms) for _ in range(2)],
        "with a bad one": [message("t"), message("t", b"")],
        "too large": [message("t", bytes(3 * MIB)) for _ in range(3)],
    }
    for name, several in sent.items():
        yield name, tried(_sent, client, *several)


def receives(stage: Stage) -> Answers:
    """Receives that find nothing, and receives that are refused."""
    client = stage.consumer("g", "t")
    wanted: dict[str, tuple[str, str, dict[str, Any]]] = {
        "nothing there": ("g", "more-to-read", {}),
        "an absent topic": ("g", "absent", {}),
        "a topic that cannot be read": ("g", "write-only", {}),
        "a closed topic": ("g", "closed", {}),
        "a system group": ("CID_RMQ_SYS_x", "t", {}),
        "a group that is off": ("off", "t", {}),
        "an invisible time too short": ("g", "t", {"invisible_ms": 9_999}),
        "an invisible time too long": ("g", "t", {"invisible_ms": 12 * HOUR_MS + 1}),
        "wrong SQL": ("g", "t", {"expression": "a >", "sql": True}),
        "empty SQL": ("g", "t", {"expression": "", "sql": True}),
        "a deadline before the long poll ends": ("g", "more-to-read", {"polling_ms": 20_000, "timeout_s": 3}),
        "no messages wanted": ("g", "more-to-read", {"batch": 0}),
        "fewer than no messages wanted": ("g", "more-to-read", {"batch": -1}),
        "more messages wanted than a receive has": ("g", "more-to-read", {"batch": 1_000}),
        **{f"a group with a bad name: {name}": (text, "t", {}) for name, text in BAD_NAMES.items()},
        **{f"a topic with a bad name: {name}": ("g", text, {}) for name, text in BAD_NAMES.items()},
    }
    for name, (group, topic, options) in wanted.items():
        yield name, tried(_received, client, group, topic, options)


def _received(client: GrpcClient, group: str, topic: str, options: dict[str, Any]) -> str:
    code, text, found = client.receive(group, topic, **options)
    return f"{named(code)} {plain(text)} {len(found) > 0}"


def handles(stage: Stage) -> Answers:
    """Receipt handles that no receive returned, in each call that takes one."""
    client, later_ms = stage.consumer("g", "t"), int(time.time() * 1000) + HOUR_MS
    forged = {
        "empty": "",
        "text": "x",
        "too short": "0 1 2",
        "expired": "0 1000 60000 0 0 broker-a 0 0 0",
        "of an absent broker": f"0 {later_ms} 60000 0 0 broker-z 0 0 0",
        "of an absent queue": f"0 {later_ms} 60000 0 0 broker-a 99 0 0",
        "of an absent offset": f"0 {later_ms} 60000 0 0 broker-a 0 99999 99999999",
        "without its last number": f"0 {later_ms} 60000 0 0 broker-a 0 0",
        "of an absent revive queue": f"0 {later_ms} 60000 99 0 broker-a 0 0 0",
        "of an ordered group": f"0 {later_ms} 60000 999 0 broker-a 0 0 0",
    }
    for name, handle in forged.items():
        yield f"acknowledge: {name}", tried(_acked, client, handle)
        change = messages.ChangeInvisibleDurationRequest(receipt_handle=handle, message_id="m")
        set_ms(change.invisible_duration, 10_000)
        forward = messages.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle, message_id="m")
        for request, verb in ((change, "ChangeInvisibleDuration"), (forward, "ForwardMessageToDeadLetterQueue")):
            request.group.name, request.topic.name = "g", "t"
            yield f"{verb}: {name}", tried(asked, client, verb, request)
    yield "acknowledge nothing", tried(_acked, client)


def _acked(client: GrpcClient, *forged: str) -> str:
    request = messages.AckMessageRequest()
    request.group.name, request.topic.name = "g", "t"
    for handle in forged:
        request.entries.add(message_id="m", receipt_handle=handle)
    answer = client.call("AckMessage", request)
    return f"{status(answer.status)} {[status(entry.status) for entry in answer.entries]}"


def transactions(stage: Stage) -> Answers:
    """Decisions, also of transactions that are not there, and recalls of delayed messages."""
    client = stage.client()

    def end(resolution: int = 1, *, topic: str = "x", transaction: str = "absent", message_id: str = "absent") -> str:
        request = messages.EndTransactionRequest(
            message_id=message_id, transaction_id=transaction, resolution=resolution, source=1
        )
        request.topic.name = topic
        return tried(asked, client, "EndTransaction", request)

    def half() -> dict[str, Any]:
        [entry] = client.send(message("x", kind=GrpcMessageType.TRANSACTION)).entries
        return {"transaction": entry.transaction_id, "message_id": entry.message_id}

    yield "an absent one", end()
    yield "a blank id", end(transaction=" ")
    for name, topic in BAD_NAMES.items():
        yield f"a topic with a bad name: {name}", end(topic=topic)
    yield "commit", end(**half())
    yield "roll back", end(2, **half())
    yield "no decision", end(0, **half())
    yield "another topic", end(**half() | {"topic": "t"})
    yield "another message id", end(**half() | {"message_id": "other"})

    def recall(handle: str, topic: str = "d") -> str:
        request = messages.RecallMessageRequest(recall_handle=handle)
        request.topic.name = topic
        return tried(asked, client, "RecallMessage", request)

    delayed = message("d", kind=GrpcMessageType.DELAY, deliver_ms=int(time.time() * 1000) + HOUR_MS)
    [sent] = client.send(delayed).entries
    yield "recall: empty", recall("")
    yield "recall: text", recall("x")
    yield "recall: another topic", recall(sent.recall_handle, "t")
    yield "recall: an absent topic", recall(sent.recall_handle, "absent")
    yield "recall", recall(sent.recall_handle)


def clients(stage: Stage) -> Answers:
    """Heartbeats and terminations, and calls that the proxy does not implement."""

    def beat(client: GrpcClient, group: str = "g") -> str:
        request = messages.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER)
        request.group.name = group
        return tried(asked, client, "Heartbeat", request)

    def leave(client: GrpcClient, group: str = "g") -> str:
        request = messages.NotifyClientTerminationRequest()
        request.group.name = group
        return tried(asked, client, "NotifyClientTermination", request)

    consumer, producer = stage.consumer("g", "t"), stage.client()
    producer.be_producer("t")
    yield "heartbeat without settings", beat(stage.client())
    yield "heartbeat", beat(consumer)
    yield "heartbeat without a group", beat(consumer, "")
    yield "heartbeat of another group", beat(consumer, "few")
    yield "heartbeat of a producer", beat(producer)
    yield "termination without settings", leave(stage.client())
    yield "termination without a group", leave(consumer, "")
    yield "termination of a producer", leave(producer)
    yield "second termination", leave(producer)
    route = messages.QueryRouteRequest()
    route.topic.name = "t"
    blank = stage.client(" ")
    yield "blank client id", tried(asked, blank, "QueryRoute", route)
    for name in ("UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"):
        request = messages.types_of(name)[0]()
        yield name, tried(asked, producer, name, request)


def views(stage: Stage) -> Answers:
    """The fields of received messages."""
    client, soon_ms = stage.client(), int(time.time() * 1000) + 2_000
    full = _with({"u": "v"}, message("t", b"body", tag="tag", keys=["a", "b"], trace_context="00-abc-def-01"))
    set_ms(full.system_properties.born_timestamp, 1_700_000_000_123)
    full.system_properties.born_host = "host"
    sent = {
        "NORMAL": full,
        "DELAY": message("d", kind=GrpcMessageType.DELAY, deliver_ms=soon_ms),
        "FIFO": message("f", kind=GrpcMessageType.FIFO, message_group="g"),
        "PRIORITY": message("p", kind=GrpcMessageType.PRIORITY, priority=1),
    }
    for kind, one in sent.items():
        topic = f"view-{kind}"
        stage.topic(topic, {"+message.type": kind})
        one.topic.name = topic
        eventually(partial(tried, _sent, client, one), lambda answer: answer.startswith("OK"))
        group = "ordered" if kind == "FIFO" else "few"
        consumer = stage.consumer(group, topic)
        yield kind, _view(consumer, group, topic)
        yield f"{kind}, again", _view(consumer, group, topic)


def _view(consumer: GrpcClient, group: str, topic: str) -> str:
    def receive() -> list[Any]:
        try:
            return consumer.receive(group, topic, invisible_ms=10_000)[2]
        except grpc.RpcError:  # a long poll that ends with the deadline on a busy machine
            return []

    [received] = eventually(receive, bool)
    fields = MessageToDict(received)
    system = fields["systemProperties"]
    handle = system.pop("receiptHandle").split()
    system.pop("queueId", None)  # 0 is left out
    system |= {name: "*" for name in VOLATILE_FIELDS if name in system}
    return plain(json.dumps([fields, len(handle), handle[4:6]], sort_keys=True))


VOLATILE_FIELDS = ("storeTimestamp", "storeHost", "messageId", "bornTimestamp", "deliveryTimestamp")


CALLS: dict[str, Callable[[Stage], Answers]] = {
    calls.__name__: calls
    for calls in (settings, routes, sends, batches, receives, handles, transactions, clients, views)
}


def played(endpoints: str, admin: AdminClient) -> dict[str, dict[str, str]]:
    """The answers of a server, by group and name."""
    stage = Stage(endpoints, admin)
    with stage.clients:
        stage.prepare()
        return {group: dict(calls(stage)) for group, calls in CALLS.items()}


def set_endpoints(endpoints: Any) -> None:
    endpoints.scheme = 1
    endpoints.addresses.add(host="10.1.2.3", port=99)


def asked(client: GrpcClient, name: str, request: Any) -> str:
    """The status of a call's answer."""
    return status(client.call(name, request).status)


def tried(call: Callable[..., str], *arguments: Any, **options: Any) -> str:
    """What a call returns, or the code and text of gRPC itself; UNIMPLEMENTED has a text of each library."""
    try:
        return call(*arguments, **options)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "gRPC UNIMPLEMENTED"
        return f"gRPC {error.code().name} {plain(error.details())}"


def status(answer: Any) -> str:
    """The name of a status, and its text unless it is OK."""
    return "OK" if answer.code == Code.OK else f"{named(answer.code)} {plain(answer.message)}"


def named(code: int) -> str:
    return Code(code).name if code in set(Code) else str(code)


def plain(text: str) -> str:
    """A text without addresses and long numbers, and without what Java adds to the text of an exception."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"\d{9,}", "NUMBER", text)
    for addition in JAVA_ADDITIONS:
        text = re.sub(addition, "", text)
    return text


# What was called, the class of the exception, its place in the sources, the code of a client's exception, and the
# address of an FAQ.
JAVA_ADDITIONS = (
    r"^process client telemetryCommand failed\. ",
    r"^(org\.apache\.rocketmq\.proxy\.common\.)?ProxyException: ",
    r"\. \w+Exception\. [\w.$<>/]+\(\w+\.java:\d+\)$",
    r"^CODE: \d+  DESC: ",
    r"\nFor more information, please visit the url, \S+$",
)
