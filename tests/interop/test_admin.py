"""Our administration of the real name server and broker, and what it asks of our consumers."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from gantrymq import AdminClient, ConsumeFromWhere, Message, Producer, PushConsumer
from gantrymq.client.admin.groups import TO_THE_END
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.body import by_queue

from .java_cluster import JavaCluster

T = TypeVar("T")
FIRST = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """One of our own: a broker without its timer store falls over it when a topic is deleted."""
    with JavaCluster(tmp_path_factory.mktemp("admin") / "store", {"timerWheelEnable": True}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: JavaCluster) -> Iterator[AdminClient]:
    with AdminClient(cluster.namesrv) as made:
        yield made


@pytest.fixture(scope="module")
def producer(cluster: JavaCluster) -> Iterator[Producer]:
    with Producer(cluster.namesrv, send_msg_timeout_ms=20_000, producer_group="admin-producers") as made:
        yield made


def eventually(ask: Callable[[], T], what: str) -> T:
    """What is asked for, once it is there and not empty."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if answer := ask():
                return answer
        except (MQClientError, MQBrokerError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"it did not come: {what}")


def test_topic_is_created_changed_and_deleted_at_real_broker(
    cluster: JavaCluster, admin: AdminClient, producer: Producer
) -> None:
    admin.create_topic("AdminTopic", read_queue_nums=3, write_queue_nums=2, attributes={"+message.type": "NORMAL"})
    route = eventually(lambda: admin.topic_route("AdminTopic"), "the route")
    assert [(one.read_queue_nums, one.write_queue_nums, one.perm) for one in route.queue_datas] == [(3, 2, 6)]
    config = admin.topic_config("AdminTopic", cluster.broker)
    assert (config.read_queue_nums, config.attributes) == (3, {"message.type": "NORMAL"})
    sent = producer.send(Message("AdminTopic", b"x"))
    eventually(lambda: admin.topic_stats("AdminTopic")[sent.queue].max_offset, "stats")
    stats = admin.topic_stats("AdminTopic")
    assert list(stats) == [MessageQueue("AdminTopic", "broker-a", number) for number in range(3)]
    assert (stats[sent.queue].min_offset, stats[sent.queue].max_offset) == (0, 1)
    assert "AdminTopic" in admin.topics()
    assert "AdminTopic" in admin.topics_of_cluster("DefaultCluster")
    assert admin.topic_consumers("AdminTopic") == []
    admin.delete_topic("AdminTopic")
    assert "AdminTopic" not in admin.topics()
    with pytest.raises(MQClientError, match="no route of topic AdminTopic"):
        admin.topic_stats("AdminTopic")
    with pytest.raises(MQClientError, match="there is no cluster Nowhere; known: DefaultCluster"):
        admin.create_topic("T", cluster="Nowhere")


def test_group_is_created_changed_and_deleted_at_real_broker(cluster: JavaCluster, admin: AdminClient) -> None:
    admin.create_subscription_group("admin-group", SubscriptionGroupConfig(retry_max_times=3))
    assert admin.subscription_group_config("admin-group", cluster.broker).retry_max_times == 3
    assert "admin-group" in admin.subscription_groups(cluster.broker)
    admin.delete_subscription_group("admin-group", remove_offset=True)
    assert "admin-group" not in admin.subscription_groups(cluster.broker)


def test_consumer_progress_is_read_and_reset_at_real_broker(
    cluster: JavaCluster, admin: AdminClient, producer: Producer
) -> None:
    seen: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        seen.extend(message.body for message in messages)

    bodies = [b"%d" % number for number in range(12)]
    sent = [producer.send(Message("AdminMoved", body), lambda queues, at=number: queues[at % 4])
            for number, body in enumerate(bodies)]  # fmt: skip
    with PushConsumer(cluster.namesrv, consumer_group="admin-moved", **FIRST) as consumer:
        consumer.subscribe("AdminMoved")
        consumer.listen(listen)
        consumer.start()
        eventually(lambda: len(seen) == 12, "all messages")
        [connection] = admin.consumer_connection("admin-moved").connection_set
        assert (connection.client_id, connection.language) == (consumer.client_id, "PYTHON")
        info = admin.consumer_running_info("admin-moved", consumer.client_id, jstack=True)
        queues = by_queue(info.mq_table)
        assert {queue.queue_id for queue in queues if queue.topic == "AdminMoved"} == {0, 1, 2, 3}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {one.topic for one in info.subscription_set} == {"AdminMoved", "%RETRY%admin-moved"}
        assert "MainThread" in (info.jstack or "")
        result = admin.consume_message_directly(
            "admin-moved", consumer.client_id, "AdminMoved", sent[5].offset_msg_id, cluster.broker
        )
        assert (result.consume_result, seen.pop()) == ("CR_SUCCESS", b"5")
        assert admin.reset_offset_by_time("admin-moved", "AdminMoved", 0)
        for number in range(4):  # each ends a long poll, the next pull is sent to the new offset
            producer.send(Message("AdminMoved", b"more"), lambda queues, at=number: queues[at])
        eventually(lambda: len(seen) >= 28, "all messages again")
        assert sorted(seen) == sorted([*bodies * 2, *[b"more"] * 4])
    stats = admin.consume_stats("admin-moved", "AdminMoved")
    assert [(one.broker_offset, one.consumer_offset) for one in stats.values()] == [(4, 4)] * 4
    with pytest.raises(MQBrokerError, match="CONSUMER_NOT_ONLINE"):
        admin.consumer_connection("admin-moved")
    queue = next(iter(stats))
    admin.update_consume_offset("admin-moved", queue, 1)
    assert admin.consume_stats("admin-moved", "AdminMoved")[queue].consumer_offset == 1
    moved = admin.reset_offset_by_time("admin-moved", "AdminMoved", TO_THE_END)
    assert set(moved.values()) == {4}
    assert admin.topic_consumers("AdminMoved") == ["admin-moved"]
    [producing] = eventually(
        lambda: admin.producer_connection("admin-producers", "AdminMoved").connection_set, "the producer"
    )
    assert producing.language == "PYTHON"


def test_messages_are_found_at_real_broker(cluster: JavaCluster, admin: AdminClient, producer: Producer) -> None:
    sent = producer.send(Message("AdminFound", b"found " * 2000, keys=("order-1", "both")))
    other = producer.send(Message("AdminFound", b"other", keys=("both",)))
    eventually(lambda: len(admin.query_message("AdminFound", "both")) == 2, "the index of both")
    assert [one.msg_id for one in admin.query_message("AdminFound", "order-1")] == [sent.msg_id]
    assert {one.msg_id for one in admin.query_message("AdminFound", "both")} == {sent.msg_id, other.msg_id}
    assert admin.query_message("AdminFound", "none") == []
    [found] = admin.query_message_by_unique_key("AdminFound", sent.msg_id)
    assert (found.body, found.broker_name) == (b"found " * 2000, "broker-a")
    for msg_id in (sent.msg_id, sent.offset_msg_id):
        assert admin.view_message("AdminFound", msg_id).queue_offset == sent.queue_offset
    with pytest.raises(MQClientError, match="no message"):
        admin.view_message("AdminFound", "0" * 32)


def test_settings_of_real_servers_are_read_and_changed(cluster: JavaCluster, admin: AdminClient) -> None:
    info = admin.cluster_info()
    assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
    assert int(admin.broker_runtime_info(cluster.broker)["bootTimestamp"]) > 0
    admin.update_broker_config({"defaultTopicQueueNums": "7"})
    assert admin.broker_config(cluster.broker)["defaultTopicQueueNums"] == "7"
    admin.update_broker_config({"defaultTopicQueueNums": "8"}, broker=cluster.broker)
    [names] = admin.name_server_config().values()
    assert names["clusterTest"] == "false"
    admin.update_name_server_config({"returnOrderTopicConfigToBroker": "true"})
    admin.put_kv_config("gantrymq", "key", "a value")
    assert admin.kv_config("gantrymq", "key") == "a value"
    assert admin.kv_configs("gantrymq") == {"key": "a value"}
    admin.delete_kv_config("gantrymq", "key")
    assert admin.kv_config("gantrymq", "key") is None
    assert admin.kv_configs("nothing") == {}
    assert set(admin.wipe_write_perm("broker-a").values()) != {0}
    assert set(admin.add_write_perm("broker-a").values()) != {0}
    for clean in (admin.clean_expired_consume_queue, admin.clean_unused_topic, admin.delete_expired_commit_log):
        clean()
    with pytest.raises(MQClientError, match="is not a setting"):
        admin.update_broker_config({"a": "b\nc=d"})
