"""What RocketMQ's keys of the proxy change, in the settings of clients and at a broker that speaks gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.grpc.clients.settings import client_settings, merged_settings
from gantrymq.grpc.protocol.codes import ClientType, Code, GrpcMessageType
from gantrymq.grpc.protocol.messages import Settings, to_ms
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from grpc_client import GrpcClient, message

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "grpcMaxInboundMessageSize": 100_000,
        "maxUserPropertySize": 64,
        "userPropertyMaxNum": 2,
        "maxMessageGroupSize": 8,
        "maxDelayTimeMills": HOUR_MS,
        "minInvisibleTimeMillsForRecv": 1,
        "maxInvisibleTimeMills": 5_000,
        "enableProxyAutoRenew": False,
        "enableMessageBodyEmptyCheck": False,
        "enableTopicMessageTypeCheck": False,
        "grpcClientConsumerMinLongPollingTimeoutMillis": 100,
    }
    with EmbeddedBroker(settings=settings, grpc=True) as running:
        running.create_topic("limits")
        running.create_topic("receives")
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[GrpcClient]:
    with GrpcClient(broker.grpc) as connected:
        yield connected


def test_client_gets_configured_metric_collector() -> None:
    sent = Settings(client_type=ClientType.PRODUCER)
    sent.publishing.SetInParent()
    sent.metric.on = True  # what a client says counts for nothing
    sent.access_point.addresses.add(host="proxy", port=8081)
    assert not merged_settings(GrpcConfig(), sent, None, 1).metric.on
    of_proxy = merged_settings(GrpcConfig(metric_collector_mode="PROXY"), sent, None, 1).metric
    assert (of_proxy.on, of_proxy.endpoints.addresses[0].host) == (True, "proxy")
    collector = GrpcConfig(metric_collector_mode="on", metric_collector_address="collector:4317")
    address = merged_settings(collector, sent, None, 1).metric.endpoints.addresses[0]
    assert (address.host, address.port) == ("collector", 4317)


def test_clients_get_settings() -> None:
    config = GrpcConfig(
        producer_max_attempts=7, producer_backoff_max_ms=50, check_message_type=False, max_polling_ms=9_000,
        receive_batch_size=5,
    )  # fmt: skip
    producer = Settings(client_type=ClientType.PRODUCER)
    producer.publishing.SetInParent()
    merged = merged_settings(config, producer, None, 99)
    assert (merged.backoff_policy.max_attempts, to_ms(merged.backoff_policy.exponential_backoff.max)) == (7, 50)
    assert (merged.publishing.validate_message_type, merged.publishing.max_body_size) == (False, 99)
    consumer = Settings(client_type=ClientType.SIMPLE_CONSUMER)
    consumer.subscription.SetInParent()
    kept = client_settings(config, consumer)
    merged = merged_settings(config, kept, SubscriptionGroupConfig(group_name="g"), 99)
    assert (merged.subscription.receive_batch_size, to_ms(merged.subscription.long_polling_timeout)) == (5, 9_000)


def test_message_limits_equal_settings(broker: EmbeddedBroker, client: GrpcClient) -> None:
    large = message("limits")
    large.user_properties["name"] = "v" * 61
    many = message("limits")
    for name in ("a", "b", "c"):
        many.user_properties[name] = "v"
    later = message("limits", kind=GrpcMessageType.DELAY, deliver_ms=broker.clock.now_ms() + HOUR_MS + 60_000)
    grouped = message("limits", kind=GrpcMessageType.FIFO, message_group="g" * 8)
    refused = [client.send(one).status.code for one in (large, many, later, grouped)]
    assert refused == [
        *[Code.MESSAGE_PROPERTIES_TOO_LARGE] * 2,
        Code.ILLEGAL_DELIVERY_TIME,
        Code.ILLEGAL_MESSAGE_GROUP,
    ]
    of_another_type = message("limits", kind=GrpcMessageType.FIFO, message_group="g" * 7)
    assert client.send(of_another_type).status.code == Code.OK
    assert client.send(message("limits", b"")).status.code == Code.INTERNAL_SERVER_ERROR  # the broker refuses it
    with pytest.raises(grpc.RpcError) as error:
        client.send(message("limits", bytes(100_001)))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_receive_limits_equal_settings(broker: EmbeddedBroker, client: GrpcClient) -> None:
    client.be_consumer("limits", "receives")
    code, _, received = client.receive("limits", "receives", polling_ms=100, invisible_ms=10)
    assert (code, received) == (Code.MESSAGE_NOT_FOUND, [])  # after 100 ms
    assert client.receive("limits", "receives", invisible_ms=5_001)[0] == Code.ILLEGAL_INVISIBLE_TIME
    # Without auto-renew the invisible time of the request counts.
    renewing = client.receive("limits", "receives", polling_ms=100, auto_renew=True, invisible_ms=5_001)
    assert renewing[0] == Code.ILLEGAL_INVISIBLE_TIME
