"""Wrong arguments: refused where they are given, in words that name them and say what is allowed."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from gantrymq import (
    AdminClient,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ClientConfig,
    EmbeddedBroker,
    LitePullConsumer,
    LitePullConsumerConfig,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullClient,
    PushConsumer,
    PushConsumerConfig,
)
from gantrymq.client import arguments
from gantrymq.client.producer.outgoing import check_message
from gantrymq.errors import AlreadyStartedError, ConfigError, MQClientError, RemotingConnectError

NOWHERE = "127.0.0.1:1"
QUEUE = MessageQueue("T", "broker-a", 0)
CONFIG = ProducerConfig(NOWHERE)


# Messages


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topic": 7}, "the topic is of type int, not a text"),
        ({"topic": None}, "the topic is of type NoneType, not a text"),
        ({"topic": "bad topic"}, "illegal characters"),
        ({"body": "text"}, "the message body is of type str, not bytes; encode the text"),
        ({"body": None}, "the message body is of type NoneType, not bytes"),
        ({"tags": ["a"]}, "tags=['a'] is not allowed: a message has one tag, as a text"),
        ({"tags": None}, "tags=None is not allowed"),
        ({"tags": "a||b"}, "tags='a||b' is not allowed: || joins the tags of a subscription"),
        ({"tags": " a"}, "tags=' a' is not allowed: a subscription's tags have no blanks around them"),
        ({"tags": "a\ud800"}, "tags: 'a\\ud800' is not allowed: it holds half a surrogate pair"),
        ({"keys": ["k\udfff"]}, "keys: 'k\\udfff' is not allowed: it holds half a surrogate pair"),
        ({"properties": {"a": "\ud83d"}}, "properties: 'a': '\\ud83d' is not allowed: it holds half a surrogate pair"),
        ({"properties": {"\ud83d": "a"}}, "properties: '\\ud83d' is not allowed: it holds half a surrogate pair"),
        ({"keys": "4711"}, "keys='4711' is one text: keys is a list of them"),
        ({"keys": ["a b"]}, "keys: 'a b' is not allowed: a text without spaces, which separate keys"),
        ({"keys": [""]}, "keys: '' is not allowed"),
        ({"keys": [7]}, "keys: 7 is not allowed"),
        ({"keys": {"a": "b"}}, "keys={'a': 'b'} is not allowed: a list of texts"),
        ({"keys": None}, "keys=None is not allowed: a list of texts"),
        ({"properties": None}, "properties=None is not allowed: a dict of texts"),
        ({"properties": {"a": None}}, "properties: a=None is not allowed: a text"),
        ({"properties": {"a": 7}}, "properties: a=7 is not allowed: a text"),
        ({"properties": {7: "a"}}, "properties: the name 7 is not allowed"),
        ({"properties": {"": "a"}}, "properties: the name '' is not allowed"),
        ({"properties": {"DELAY": "99"}}, "properties: DELAY='99' is not allowed: 0 for no delay, or a level from 1"),
        ({"properties": {"DELAY": "soon"}}, "properties: DELAY='soon' is not allowed"),
        ({"properties": {"INNER_MULTI_DISPATCH": "a/b"}}, "can not contains /"),
        ({"delay_level": 99}, "delay_level=99 is not allowed: 0 for no delay, or a level from 1 to 18"),
        ({"delay_level": -1}, "delay_level=-1 is not allowed"),
        ({"delay_level": True}, "delay_level=True is not allowed"),
        ({"delay_level": "3"}, "delay_level='3' is not allowed"),
        (
            {"queue_id": 3},
            "queue_id=3 has no effect in a producer: the queue is chosen by the producer, or given beside",
        ),
        ({"born_timestamp_ms": 1}, "born_timestamp_ms=1 has no effect in a producer"),
        ({"prepared_transaction_offset": 1}, "prepared_transaction_offset=1 has no effect in a producer"),
        ({"sys_flag": 4}, "sys_flag=4 is not allowed: only bits of compression"),
        ({"flag": 1 << 40}, "is not allowed: a whole number of 32 bits"),
        ({"flag": "x"}, "flag='x' is not allowed"),
        ({"reconsume_times": -1}, "reconsume_times=-1 is not allowed"),
        ({"wait_store_msg_ok": 1}, "wait_store_msg_ok=1 is not allowed: True or False"),
    ],
)
def test_wrong_message_is_refused_with_clear_error(wrong: dict[str, Any], said: str) -> None:
    message = Message(**({"topic": "T", "body": b"x"} | wrong))
    with pytest.raises(MQClientError, match=re.escape(said)):
        check_message(message, CONFIG)


def test_valid_arguments_of_producer_are_accepted() -> None:
    properties = {"a": "", "UNIQ_KEY": "x", "DELAY": "18"}
    check_message(Message("%RETRY%g", b"x", tags="a b", keys=("k", "ü"), properties=properties, flag=-1), CONFIG)
    check_message(Message("T", b"x", delay_level=30), ProducerConfig(NOWHERE, max_delay_level=40))


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    with Producer(NOWHERE, send_msg_timeout_ms=100) as made:
        yield made


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda one: one.send("t", b"x"), "a Message is sent, not 't' of type str: send(Message('topic', b'body'))"),
        (lambda one: one.send_async("t", b"x"), "a Message is sent, not 't' of type str"),
        (lambda one: one.send_oneway(b"x"), "a Message is sent, not b'x' of type bytes"),
        (lambda one: one.send(Message("T", b"x"), 3), "queue=3 is neither a MessageQueue nor a function"),
        (lambda one: one.send_async(Message("T", b"x"), "T"), "queue='T' is neither a MessageQueue nor a function"),
        (lambda one: one.send(Message("T", b"x"), b"x"), "the body belongs into the message"),
        (lambda one: one.send(Message("T", b"x"), timeout_ms=0), "timeout_ms=0 is not allowed: a whole number from 1"),
        (lambda one: one.send(Message("T", b"x"), timeout_ms="3"), "timeout_ms='3' is not allowed"),
        (lambda one: one.send_async(Message("T", b"x"), timeout_ms=True), "timeout_ms=True is not allowed"),
        (lambda one: one.send_async(Message("T", b"x"), timeout_ms=-1), "timeout_ms=-1 is not allowed"),
        (lambda one: one.send_batch(Message("T", b"x")), "a batch is several Messages, as a list, not one Message"),
        (lambda one: one.send_batch("abc"), "a batch is several Messages"),
        (lambda one: one.send_batch(7), "a batch is several Messages"),
        (lambda one: one.send_batch([Message("T", b"x"), b"x"]), "a Message is sent, not b'x' of type bytes"),
        (lambda one: one.send_batch([]), "the batch is empty"),
        (lambda one: one.send_batch([Message("T", b"x", sys_flag=1)]), "sys_flag is not supported for batching"),
        (lambda one: one.flush(-1), "flush: timeout_ms=-1 is not allowed"),
        (lambda one: one.flush("1"), "flush: timeout_ms='1' is not allowed"),
        (lambda one: one.queues("bad topic"), "queues: topic='bad topic' is not allowed: a text of 1 to 255"),
        (lambda one: one.queues(None), "queues: topic=None is not allowed"),
    ],
)
def test_producer_refuses_wrong_arguments_with_clear_error(
    producer: Producer, call: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(MQClientError, match=re.escape(said)):
        call(producer)


def test_queue_of_another_topic_or_none_at_all_is_refused() -> None:
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        broker.create_topic("T", 1)
        message = Message("T", b"x")
        for send in (producer.send, producer.send_oneway, lambda *given: producer.send_async(*given).result()):
            with pytest.raises(MQClientError, match="is of another topic than the message, T"):
                send(message, MessageQueue("U", "broker-a", 0))
            with pytest.raises(MQClientError, match="is of another topic than the message, T"):
                send(message, lambda queues: MessageQueue("U", "broker-a", 0))
            with pytest.raises(MQClientError, match="has no number from 0"):
                send(message, MessageQueue("T", "broker-a", -1))
            with pytest.raises(MQClientError, match="returned None, which is no MessageQueue"):
                send(message, lambda queues: None)
        assert broker.bodies("T") == []


# Consumers


def generator(messages: object, context: object) -> Iterator[None]:
    yield


class WithoutCall:
    def consume_message(self, messages: object, context: object) -> None: ...


@pytest.fixture(scope="module")
def push() -> Iterator[PushConsumer]:
    with PushConsumer(NOWHERE, consumer_group="g") as made:
        yield made


@pytest.fixture(scope="module")
def lite() -> Iterator[LitePullConsumer]:
    made = LitePullConsumer(NOWHERE, consumer_group="g")
    yield made
    made.close()


@pytest.mark.parametrize("listen", ["listen", "listen_orderly"])
@pytest.mark.parametrize(
    "wrong",
    [42, None, "f", lambda m: None, lambda: None, lambda m, c, more: None, generator, WithoutCall(), WithoutCall, dict],
)
def test_invalid_listener_is_refused(push: PushConsumer, listen: str, wrong: Any) -> None:
    with pytest.raises(
        MQClientError, match=rf"{listen}: listener=.* is not allowed: a function of \(messages, context\)"
    ):
        getattr(push, listen)(wrong)


def test_callable_with_two_parameters_is_accepted_as_listener() -> None:
    class Callable_:
        def __call__(self, messages: object, context: object) -> None: ...

        def method(self, messages: object, context: object, more: int = 0) -> None: ...

    async def coroutine(messages: object, context: object) -> None: ...

    rule = arguments.callback("messages", "context")
    for right in (Callable_(), Callable_().method, coroutine, lambda *given: None, partial(coroutine), print):
        assert rule(right) is right


def test_second_listener_is_refused() -> None:
    with PushConsumer(NOWHERE, consumer_group="g") as consumer:
        consumer.listen(lambda messages, context: None)
        for listen in (consumer.listen, consumer.listen_orderly):
            with pytest.raises(MQClientError, match="the consumer has a listener already"):
                listen(lambda messages, context: None)


@pytest.mark.parametrize("kind", ["push", "lite"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda one: one.subscribe("bad topic"), "subscribe: topic='bad topic' is not allowed: a text of 1 to 255"),
        (lambda one: one.subscribe(7), "subscribe: topic=7 is not allowed"),
        (lambda one: one.subscribe(["T"]), "subscribe: topic=['T'] is not allowed"),
        (lambda one: one.subscribe("T", ["a"]), "subscribe: expression=['a'] is not allowed: a text such as"),
        (lambda one: one.subscribe("T", "a || \udc00"), "it holds half a surrogate pair, which UTF-8 does not have"),
        (lambda one: one.subscribe("T", "a", "SQL"), "expression_type='SQL' is not allowed: 'TAG' or 'SQL92'"),
        (lambda one: one.unsubscribe(None), "unsubscribe: topic=None is not allowed"),
        (
            lambda one: one.register_message_queue_listener(lambda topic: None),
            "is not allowed: a function of (topic, queues, mine)",
        ),
    ],
)
def test_consumers_refuse_wrong_arguments_with_clear_error(
    request: pytest.FixtureRequest, kind: str, call: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(MQClientError, match=re.escape(said)):
        call(request.getfixturevalue(kind))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda one: one.assign(QUEUE), "assign: queues=MessageQueue("),
        (lambda one: one.assign("T"), "assign: queues='T' is not allowed: several MessageQueues, as a list"),
        (lambda one: one.assign(["T"]), "is not allowed: several MessageQueues"),
        (lambda one: one.pause(QUEUE), "pause: queues=MessageQueue("),
        (lambda one: one.resume(7), "resume: queues=7 is not allowed"),
        (lambda one: one.poll("5"), "timeout_ms='5' is not allowed: a whole number from 0"),
        (lambda one: one.poll(-1), "timeout_ms=-1 is not allowed"),
        (lambda one: one.seek("T", 0), "seek: queue='T' is not allowed: a MessageQueue"),
        (lambda one: one.seek(MessageQueue("T", "b", -1), 0), "is not allowed: a MessageQueue with a number from 0"),
        (lambda one: one.seek(MessageQueue("T", None, 0), 0), "is not allowed: a MessageQueue"),
        (lambda one: one.commit(), "The consumer not running"),
        (lambda one: one.seek(QUEUE, -1), "seek: offset=-1 is not allowed"),
        (lambda one: one.seek(QUEUE, True), "seek: offset=True is not allowed"),
        (lambda one: one.seek_to_end(None), "seek_to_end: queue=None is not allowed"),
        (lambda one: one.commit(QUEUE), "commit: queues=MessageQueue("),
        (lambda one: one.commit(persist=1), "commit: persist=1 is not allowed: True or False"),
        (lambda one: one.commit_offsets({QUEUE: -1}), "is not allowed: offsets from 0 by MessageQueue"),
        (lambda one: one.commit_offsets([1]), "commit_offsets: offsets=[1] is not allowed"),
        (lambda one: one.committed(None), "committed: queue=None is not allowed"),
        (lambda one: one.offset_for_timestamp(QUEUE, "now"), "timestamp_ms='now' is not allowed"),
        (lambda one: one.fetch_message_queues(""), "fetch_message_queues: topic='' is not allowed"),
        (lambda one: one.set_sub_expression_for_assign("T", 5), "expression=5 is not allowed"),
        (
            lambda one: one.register_topic_message_queue_change_listener("T", lambda topic: None),
            "is not allowed: a function of (topic, queues)",
        ),
    ],
)
def test_lite_pull_consumer_refuses_wrong_arguments_with_clear_error(
    lite: LitePullConsumer, call: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(MQClientError, match=re.escape(said)):
        call(lite)


@pytest.mark.parametrize(
    ("config", "wrong", "said"),
    [
        (ProducerConfig, {"send_msg_timeout_ms": 0}, "sendMsgTimeout=0 is not allowed: at least 1"),
        (ProducerConfig, {"send_msg_timeout_ms": "3"}, "sendMsgTimeout='3' is not allowed: a whole number"),
        (ProducerConfig, {"send_msg_timeout_ms": True}, "sendMsgTimeout=True"),
        (ProducerConfig, {"retry_times_when_send_failed": -1}, "retryTimesWhenSendFailed=-1"),
        (ProducerConfig, {"max_message_size": 0}, "maxMessageSize=0"),
        (ProducerConfig, {"compression_type": "GZIP"}, "one of ZLIB, LZ4, ZSTD"),
        (ProducerConfig, {"producer_group": "a b"}, "producerGroup='a b'"),
        (ProducerConfig, {"namespace": "a b"}, "namespace='a b' is not allowed: only letters, digits"),
        (ProducerConfig, {"tls": {"tls.enable": True}}, "tls='…' is not allowed: texts by keys"),
        (ProducerConfig, {"tls": "on"}, "tls='…' is not allowed"),
        (ProducerConfig, {"access_key": "a", "secret_key": 5}, "secret_key='…' is not allowed: a text"),
        (ProducerConfig, {"connect_timeout_ms": -5}, "connectTimeoutMillis=-5"),
        (PushConsumerConfig, {"consume_thread_max": 0}, "consumeThreadMax=0"),
        (PushConsumerConfig, {"persist_consumer_offset_interval_ms": 0}, "persistConsumerOffsetInterval=0"),
        (PushConsumerConfig, {"poll_name_server_interval_ms": 0}, "pollNameServerInterval=0"),
        (PushConsumerConfig, {"instance_name": "../x"}, "instanceName='../x'"),
        (PushConsumerConfig, {"instance_name": ""}, "instanceName=''"),
        (PushConsumerConfig, {"local_offset_store_dir": 5}, "localOffsetStoreDir=5"),
        (PushConsumerConfig, {"local_offset_store_dir": "a\0b"}, "localOffsetStoreDir='a\\x00b'"),
        (PushConsumerConfig, {"local_offset_store_dir": "~nobody-of-that-name/x"}, "localOffsetStoreDir="),
        (PushConsumerConfig, {"allocate_message_queue_strategy": "averagely"}, "allocateMessageQueueStrategy="),
        (PushConsumerConfig, {"allocate_message_queue_strategy": AsyncProducer}, "allocateMessageQueueStrategy="),
        (PushConsumerConfig, {"consume_from_where": "FIRST"}, "one of CONSUME_FROM_LAST_OFFSET"),
        (PushConsumerConfig, {"pull_batch_size_in_bytes": 0}, "pullBatchSizeInBytes=0"),
        (LitePullConsumerConfig, {"poll_timeout_ms": -1}, "pollTimeoutMillis=-1"),
        (LitePullConsumerConfig, {"topic_metadata_check_interval_ms": 0}, "topicMetadataCheckIntervalMillis=0"),
        (ClientConfig, {"request_timeout_ms": 0}, "mqClientApiTimeout=0"),
    ],
)
def test_settings_out_of_range_or_of_another_type_are_refused(config: Any, wrong: dict[str, Any], said: str) -> None:
    group = {} if config in (ProducerConfig, ClientConfig) else {"consumer_group": "g"}
    with pytest.raises(ConfigError, match=re.escape(said)):
        config(NOWHERE, **group, **wrong)


# Clients that are closed


def test_call_of_closed_client_raises_clear_error() -> None:
    producer, push = Producer(NOWHERE), PushConsumer(NOWHERE, consumer_group="g")
    lite = LitePullConsumer(NOWHERE, consumer_group="g")
    admin, puller = AdminClient(NOWHERE), PullClient(NOWHERE)
    for client in (producer, push, lite, admin, puller):
        client.close()
    calls: list[Callable[[], object]] = [
        lambda: producer.send(Message("T", b"x")),
        lambda: producer.send_async(Message("T", b"x")),
        lambda: producer.send_oneway(Message("T", b"x")),
        producer.flush,
        producer.start,
        producer.__enter__,
        admin.topics,
        puller.topics,
        push.start,
        lambda: push.subscribe("T"),
        lite.start,
        lite.poll,
        lambda: lite.subscribe("T"),
    ]
    for call in calls:
        with pytest.raises(MQClientError, match="is closed"):
            call()


def test_call_of_closed_async_client_raises_clear_error() -> None:
    async def scenario() -> None:
        producer, push = AsyncProducer(NOWHERE), AsyncPushConsumer(NOWHERE, consumer_group="g")
        lite = AsyncLitePullConsumer(NOWHERE, consumer_group="g")
        for client in (producer, push, lite):
            await client.close()
        for send in (producer.send, producer.send_oneway, lambda message: producer.send_batch([message])):
            with pytest.raises(MQClientError, match="the producer is closed"):
                await send(Message("T", b"x"))
        with pytest.raises(MQClientError, match="the consumer is closed"):
            push.subscribe("T")
        with pytest.raises(MQClientError, match="the consumer is closed"):
            await lite.subscribe("T")
        for start in (push.start, lite.start):
            with pytest.raises(AlreadyStartedError):
                await start()

    asyncio.run(scenario())


# Administration


ADMIN_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda one: one.create_topic(5), "create_topic: topic=5 is not allowed"),
    (lambda one: one.create_topic("T", read_queue_nums=0), "read_queue_nums=0 is not allowed: a whole number from 1"),
    (lambda one: one.create_topic("T", write_queue_nums="8"), "write_queue_nums='8' is not allowed"),
    (lambda one: one.create_topic("T", perm=9), "perm=9 is not allowed: a whole number from 0 to 7"),
    (lambda one: one.create_topic("T", broker="b"), "broker='b' is not allowed: the address of a broker, host:port"),
    (
        lambda one: one.create_topic("T", broker="b:0"),
        "broker='b:0' is not allowed: the address of a broker, host:port",
    ),
    (lambda one: one.create_topic("T", broker="::1:10911"), "an IPv6 host stands in brackets, as [::1]:10911"),
    (lambda one: one.create_topic("T\ud800"), "create_topic: topic='T\\ud800' is not allowed"),
    (lambda one: one.query_message("T", "\ud800"), "a text: it holds half a surrogate pair"),
    (lambda one: one.create_topic("T", broker="b:1", cluster="C"), "give one of them, or neither for all"),
    (lambda one: one.create_topic("T", order_topic=1), "order_topic=1 is not allowed: True or False"),
    (lambda one: one.delete_topic(None), "delete_topic: topic=None is not allowed"),
    (lambda one: one.topic_route(b"T"), "topic_route: topic=b'T' is not allowed"),
    (lambda one: one.topic_config("T", None), "topic_config: broker=None is not allowed"),
    (lambda one: one.topics_of_cluster(7), "cluster=7 is not allowed"),
    (lambda one: one.consume_stats("a b"), "consume_stats: group='a b' is not allowed"),
    (lambda one: one.reset_offset_by_time("g", "T", "now"), "timestamp_ms='now' is not allowed"),
    (lambda one: one.reset_offset_by_time("g", "T", 1, force="no"), "force='no' is not allowed"),
    (lambda one: one.update_consume_offset("g", "T", 1), "queue='T' is not allowed: a MessageQueue"),
    (lambda one: one.update_consume_offset("g", QUEUE, -1), "offset=-1 is not allowed"),
    (lambda one: one.query_message("T", ""), "query_message: key='' is not allowed: a text"),
    (lambda one: one.query_message("T", "k", max_num=0), "max_num=0 is not allowed"),
    (lambda one: one.query_message("T", "k", begin_ms="1"), "begin_ms='1' is not allowed"),
    (lambda one: one.view_message("T", 5), "msg_id=5 is not allowed"),
    (lambda one: one.update_broker_config({"a": 1}), "settings={'a': 1} is not allowed: texts by name"),
    (lambda one: one.update_name_server_config([1]), "settings=[1] is not allowed"),
    (lambda one: one.put_kv_config("", "k", "v"), "namespace='' is not allowed"),
    (lambda one: one.wipe_write_perm(None), "broker_name=None is not allowed"),
]


@pytest.mark.parametrize(("call", "said"), ADMIN_CALLS)
def test_admin_client_refuses_wrong_arguments_with_clear_error(call: Callable[[Any], object], said: str) -> None:
    with AdminClient(NOWHERE) as admin, pytest.raises(MQClientError, match=re.escape(said)):
        call(admin)


PULL_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda one: one.queues(7), "queues: topic=7 is not allowed"),
    (lambda one: one.min_offset("T"), "min_offset: queue='T' is not allowed"),
    (lambda one: one.pull(QUEUE, -1), "pull: offset=-1 is not allowed"),
    (lambda one: one.pull(QUEUE, 0, 0), "pull: max_messages=0 is not allowed"),
    (lambda one: list(one.read(QUEUE, "0", 1)), "read: begin='0' is not allowed"),
]


@pytest.mark.parametrize(("call", "said"), PULL_CALLS)
def test_pull_client_refuses_wrong_arguments_with_clear_error(call: Callable[[Any], object], said: str) -> None:
    with PullClient(NOWHERE) as client, pytest.raises(MQClientError, match=re.escape(said)):
        call(client)


@pytest.mark.parametrize(
    "client", [AdminClient, AsyncLitePullConsumer, AsyncPushConsumer, PullClient], ids=lambda one: one.__name__
)
def test_public_methods_check_every_argument_with_rule(client: type) -> None:
    """One that is added takes part by the names of its parameters."""
    for name, method in inspect.getmembers(client, inspect.isfunction):
        parameters = set(inspect.signature(method).parameters) & arguments._RULES.keys()
        if parameters and not name.startswith("_"):
            assert hasattr(method, "__wrapped__"), name


def test_topic_with_unusual_name_is_read_and_administered() -> None:
    """A store may have one: the tools that wrote it were not all clients."""
    for client, call in ((PullClient, "queues"), (AdminClient, "topic_route"), (AdminClient, "topic_stats")):
        with client(NOWHERE) as made, pytest.raises(RemotingConnectError):
            getattr(made, call)("主题 1")
