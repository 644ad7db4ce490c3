"""`gantrymq proxy`: the same calls, over remoting to the brokers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import grpc
import pytest
from client_cases import eventually

from gantrymq import AdminClient
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.embedded.proxy import Proxy
from gantrymq.errors import ConfigError, MQBrokerError, MQClientError
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import Code, GrpcMessageType, TransactionResolution
from grpc_client import GrpcClient, message


@pytest.fixture(scope="module")
def address(broker: EmbeddedBroker) -> Iterator[str]:
    config = ProxyConfig(namesrv_addr=broker.namesrv, grpc_server_port=0, producer_heartbeat_s=1)
    proxy, loop = Proxy(config), LoopThread("proxy")
    loop.run(proxy.start())
    yield proxy.address
    loop.close(proxy.shutdown())


@pytest.fixture
def client(address: str) -> Iterator[GrpcClient]:
    with GrpcClient(address) as connected:
        yield connected


def test_message_is_received_in_order_and_acknowledged(broker: EmbeddedBroker, client: GrpcClient) -> None:
    topic = f"t-{uuid4().hex[:12]}"
    broker.create_topic(topic, message_type="FIFO")
    broker.create_group(f"g-{topic}", order=True, max_retries=3)
    settings = client.be_consumer(f"g-{topic}", topic)
    assert (settings.subscription.fifo, settings.backoff_policy.max_attempts) == (True, 4)
    sent = client.send(message(topic, b"1", GrpcMessageType.FIFO, message_group="eu"))
    assert sent.status.code == Code.OK
    code, _, (received,) = client.receive(f"g-{topic}", topic)
    assert (code, received.body) == (Code.OK, b"1")
    assert client.ack(f"g-{topic}", topic, received).status.code == Code.OK
    assert client.send(message(topic, b"2")).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_undecided_transaction_is_checked(broker: EmbeddedBroker, client: GrpcClient) -> None:
    topic = f"t-{uuid4().hex[:12]}"
    broker.create_topic(topic, message_type="TRANSACTION")
    client.be_producer(topic)
    entry = client.send(message(topic, b"orphan", GrpcMessageType.TRANSACTION, recovery_s=10)).entries[0]
    broker.clock.advance(60_000)
    check = client.next_command().recover_orphaned_transaction_command
    assert (check.transaction_id, check.message.body) == (entry.transaction_id, b"orphan")
    assert client.end_transaction(topic, entry, TransactionResolution.COMMIT, checked=True).status.code == Code.OK
    broker.wait_for_messages(topic, 1)


def test_closed_producer_is_unregistered(broker: EmbeddedBroker, address: str) -> None:
    """A broker closes the connection of a producer that sends no more heartbeats, and all clients share it."""
    topic = f"t-{uuid4().hex[:12]}"
    broker.create_topic(topic, message_type="TRANSACTION")
    with AdminClient(broker.namesrv) as admin:
        with GrpcClient(address) as leaving:
            leaving.be_producer(topic)
            eventually(lambda: has_producers(admin, topic), "the proxy is registered as a producer")
            leaving.call("NotifyClientTermination", messages.NotifyClientTerminationRequest())
        eventually(lambda: not has_producers(admin, topic), "the proxy is no longer registered as a producer")


def has_producers(admin: AdminClient, topic: str) -> bool:
    """Whether the broker knows a producer of transactions. The group of the proxy's heartbeats is the topic."""
    try:
        return bool(admin.producer_connection(topic, topic).connection_set)
    except (MQBrokerError, MQClientError):
        return False


def test_unknown_topic_and_handle_of_unknown_broker_are_refused(client: GrpcClient) -> None:
    request = messages.QueryRouteRequest()
    request.topic.name = "nowhere"
    assert client.call("QueryRoute", request).status.code == Code.TOPIC_NOT_FOUND
    forged = messages.AckMessageRequest()
    forged.group.name, forged.topic.name = "g", "nowhere"
    forged.entries.add(message_id="m", receipt_handle="0 9000000000000 60000 0 0 broker-z 0 0 0")
    assert client.call("AckMessage", forged).status.code == Code.BAD_REQUEST


def test_settings_fail_while_no_name_server_answers() -> None:
    proxy, loop = Proxy(ProxyConfig(namesrv_addr="127.0.0.1:1", grpc_server_port=0)), LoopThread("proxy")
    loop.run(proxy.start())
    try:
        with GrpcClient(proxy.address) as client, pytest.raises(grpc.RpcError) as raised:
            client.be_consumer("g", "t")
        assert raised.value.code() is grpc.StatusCode.INTERNAL
    finally:
        loop.close(proxy.shutdown())


def test_proxy_without_name_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="namesrvAddr"):
        Proxy(ProxyConfig())
