"""The errors of sends that a broker refuses: they carry RocketMQ's response code, also after several attempts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantrymq import (
    AdminClient,
    AsyncProducer,
    EmbeddedBroker,
    LocalTransactionState,
    Message,
    MessageQueue,
    MQClientError,
    Producer,
    SendFailedError,
    TransactionProducer,
)
from gantrymq.client.requests.calls import Call, accepted
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader

KEYS = {"access_key": "operator", "secret_key": "secret-1"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that accepts no request without a signature."""
    accounts = Path(tmp_path_factory.mktemp("acl"), "plain_acl.yml")
    accounts.write_text("accounts:\n- accessKey: operator\n  secretKey: secret-1\n  admin: true\n")
    with EmbeddedBroker(settings={"aclEnable": True, "aclPlainFile": str(accounts)}) as running:
        with AdminClient(running.namesrv, **KEYS) as admin:  # type: ignore[arg-type]
            for topic in ("Guarded", "Elsewhere"):
                admin.create_topic(topic, read_queue_nums=1, write_queue_nums=1)
        yield running


MESSAGE = Message("Guarded", b"x")


def sent_by_coroutine(namesrv: str) -> None:
    async def send() -> None:
        async with AsyncProducer(namesrv) as producer:
            await producer.send(MESSAGE)

    asyncio.run(send())


def sent_in_transaction(namesrv: str) -> None:
    def commit(message: Message, argument: object) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    with TransactionProducer(namesrv, producer_group="t", check=lambda message: LocalTransactionState.UNKNOW) as one:
        one.send_in_transaction(MESSAGE, commit)


def with_producer(send: str) -> object:
    def sent(namesrv: str) -> None:
        with Producer(namesrv) as producer:
            match send:
                case "send":
                    producer.send(MESSAGE)
                case "future":
                    producer.send_async(MESSAGE).result()
                case "batch":
                    producer.send_batch([MESSAGE, MESSAGE])
                case "request":
                    producer.request(MESSAGE, 5_000)

    return sent


WAYS = {way: with_producer(way) for way in ("send", "future", "batch", "request")}


@pytest.mark.parametrize(
    "send", [*WAYS.values(), sent_by_coroutine, sent_in_transaction], ids=[*WAYS, "coroutine", "transaction"]
)
def test_send_without_permission_raises_error_with_response_code(broker: EmbeddedBroker, send: object) -> None:
    with pytest.raises(MQClientError, match=r"Send \[3\] times, still failed") as raised:
        send(broker.namesrv)  # type: ignore[operator]
    assert raised.value.response_code == ResponseCode.NO_PERMISSION
    assert isinstance(raised.value, SendFailedError)
    assert raised.value.is_refused


def test_send_whose_last_attempt_does_not_connect_keeps_response_code_of_refusal(broker: EmbeddedBroker) -> None:
    """RocketMQ's code is then CONNECT_BROKER_EXCEPTION: it hides why the broker that runs refused the message."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = RegisterBrokerRequestHeader(
        broker_name="broker-z", broker_addr=f"127.0.0.1:{port}", cluster_name="C", broker_id=0, ha_server_addr=""
    )
    config = TopicConfig(topic_name="Elsewhere", read_queue_nums=1, write_queue_nums=1)
    said = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=dict.fromkeys(("Elsewhere", "Other"), config), data_version=DataVersion(counter=1)
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=said).encode()
    with (
        AdminClient(broker.namesrv) as admin,  # the name server forgets broker-z with its connection
        Producer(broker.namesrv, retry_times_when_send_failed=3) as producer,
    ):
        admin._client.call(broker.namesrv, Call(lambda: RemotingCommand.request(away, body), accepted))
        for _ in range(2):  # the brokers take turns, so one of the two ends with broker-z
            with pytest.raises(SendFailedError) as raised:
                producer.send(Message("Elsewhere", b"x"))
            assert raised.value.response_code == ResponseCode.NO_PERMISSION
            assert not raised.value.is_refused


def test_send_without_any_answer_has_no_response_code(broker: EmbeddedBroker) -> None:
    with Producer(broker.namesrv) as producer, pytest.raises(MQClientError) as raised:
        producer.send(MESSAGE, lambda queues: MessageQueue("Guarded", "unknown", 0))
    assert raised.value.response_code is None
