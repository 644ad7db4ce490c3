"""The real broker takes the priority of our producer's messages, and the real consumer reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq import AdminClient, Message, Producer

from .java_cluster import JavaCluster, await_dispatch


@pytest.mark.slow
def test_real_broker_puts_our_messages_into_queues_of_priorities(tmp_path: Path) -> None:
    with JavaCluster(tmp_path / "store", {"brokerName": "broker-a"}) as cluster:
        with AdminClient(cluster.namesrv, request_timeout_ms=10_000) as admin:
            attributes = {"+message.type": "PRIORITY"}
            admin.create_topic("Urgent", read_queue_nums=4, write_queue_nums=4, attributes=attributes)
        with Producer(cluster.namesrv) as producer:
            sent = [producer.send(Message("Urgent", str(number).encode(), priority=number)) for number in (3, 0, 2)]
        assert [result.queue.queue_id for result in sent] == [3, 0, 2]
        await_dispatch(cluster.namesrv, sent)
        lines = cluster.pull("Urgent", 3)
    found = {(line["queueId"], line["properties"]["_SYS_MSG_PRIORITY_"]) for line in lines}
    assert found == {(0, "0"), (2, "2"), (3, "3")}
