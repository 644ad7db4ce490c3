"""Message traces: Java reads what ours writes, ours reads what Java writes, and mqadmin finds them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    MessageType,
    Producer,
    PullClient,
    PushConsumer,
    ReceivedMessage,
    TraceRecord,
    TraceType,
    TransactionProducer,
    decode_records,
    decode_traces,
)
from gantrymq.format.trace import encode_traces

from .java import Line, run_java
from .java_cluster import JavaCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SECONDS = 60
KINDS = [
    TraceRecord(
        TraceType.PUB, 1_700_000_000_000, "R", "g", "T", "ID", "OFF", "a", "k1 k2", "127.0.0.1:10911",
        body_size_bytes=5, message_type=MessageType.DELAY, cost_ms=7, is_success=False,
    ),
    TraceRecord(TraceType.PUB, 1, "R", "g", "T", "ID"),
    TraceRecord(TraceType.SUB_BEFORE, 2, "R", "g", msg_id="ID", keys="k", request_id="REQ", retry_times=3),
    TraceRecord(TraceType.SUB_BEFORE, 2, "R", "g", msg_id="ID", request_id="REQ"),
    TraceRecord(TraceType.SUB_AFTER, 3, group="g", msg_id="ID", request_id="REQ", cost_ms=9, context_code=4),
    TraceRecord(
        TraceType.END_TRANSACTION, 4, "R", "g", "T", "ID", tags="t", store_host="h", transaction_id="TX",
        message_type=MessageType.TRANSACTION_COMMIT, transaction_state="ROLLBACK_MESSAGE", is_from_check=True,
    ),
    TraceRecord(TraceType.RECALL, 5, "R", "g", "T", "ID", is_success=False),
]  # fmt: skip
JAVA_TYPES = ["Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg"]


def check_as_java_reads(record: TraceRecord, line: Line) -> None:
    """Java's fields are those of the record, where its type has them."""
    empty = {"tags": "null", "keys": "null", "region": "null"}
    wanted: dict[str, Any] = {
        "type": record.type.value, "group": record.group, "success": record.is_success, "topic": record.topic,
        "msgId": record.msg_id, "tags": record.tags, "keys": record.keys, "cost": record.cost_ms,
        "offsetMsgId": record.offset_msg_id, "retryTimes": record.retry_times, "contextCode": record.context_code,
        "bodyLength": record.body_size_bytes, "timestamp": record.timestamp_ms,
        "transactionId": record.transaction_id or None, "transactionState": record.transaction_state or None,
        "fromCheck": record.is_from_check, "region": record.region_id,
    }  # fmt: skip
    for name, value in wanted.items():
        read = line.get(name)
        assert read == value or (value == "" and read == empty.get(name)), name
    if record.request_id:
        assert line["requestId"] == record.request_id
    if record.store_host:
        assert line["storeHost"] == record.store_host
    if "msgType" in line:
        assert line["msgType"] == JAVA_TYPES[record.message_type]


def test_trace_record_of_every_kind_equals_that_of_java(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps({"data": encode_traces(KINDS)}) + "\n")
    lines = run_java("trace-data", None, file)  # type: ignore[arg-type]
    assert len(lines) == len(KINDS)
    for record, line in zip(KINDS, lines, strict=True):
        check_as_java_reads(record, line)
        (again,), unread = decode_traces(line["again"])
        assert unread == []
        assert again == record
        assert line["again"] == encode_traces([record])


def bodies(namesrv: str, topic: str) -> list[str]:
    with PullClient(namesrv) as client:
        return [
            message.body.decode()
            for queue in client.queues(topic)
            for pulled in client.read(queue, client.min_offset(queue), client.max_offset(queue))
            for message in decode_records(pulled.records)
        ]


def test_traces_of_our_clients_are_read_at_real_broker(tmp_path: Path) -> None:
    done: list[str] = []

    def listen(messages: Sequence[ReceivedMessage], context: Any) -> None:
        done.append(messages[0].msg_id)

    with JavaCluster(tmp_path / "store", {"timerWheelEnable": True, "recallMessageEnable": True}) as cluster:
        commit = LocalTransactionState.COMMIT_MESSAGE
        with (
            Producer(cluster.namesrv, producer_group="P", trace=True) as producer,
            TransactionProducer(cluster.namesrv, lambda message: commit, producer_group="X", trace=True) as half,
        ):
            plain = producer.send(Message("T", b"plain", tags="a", keys=("key-1",)))
            late = producer.send(Message("T", b"late", delay_ms=60_000))
            producer.recall("T", late.recall_handle or "")
            whole = half.send_in_transaction(Message("T", b"half"), lambda message, key: commit)
        with PushConsumer(
            cluster.namesrv, consumer_group="C", trace=True,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:  # fmt: skip
            consumer.subscribe("T")
            consumer.listen(listen)
            consumer.start()
            deadline = time.monotonic() + SECONDS
            while len(done) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        texts = bodies(cluster.namesrv, "RMQ_SYS_TRACE_TOPIC")
        shown = run_mqadmin(tmp_path, cluster.namesrv, f"queryMsgTraceById -i {plain.msg_id} -t RMQ_SYS_TRACE_TOPIC")
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(json.dumps({"data": text}) + "\n" for text in texts))
    lines = run_java("trace-data", None, file)  # type: ignore[arg-type]
    ours = [record for text in texts for record in decode_traces(text)[0]]
    assert len(lines) == len(ours)
    for record, line in zip(ours, lines, strict=True):
        check_as_java_reads(record, line)
    found = {(one.type, one.group, one.msg_id) for one in ours}
    assert found == {
        (TraceType.PUB, "P", plain.msg_id), (TraceType.PUB, "P", late.msg_id), (TraceType.RECALL, "P", late.msg_id),
        (TraceType.PUB, "X", whole.msg_id), (TraceType.END_TRANSACTION, "X", whole.msg_id),
        *((kind, "C", msg_id) for msg_id in (plain.msg_id, whole.msg_id)
          for kind in (TraceType.SUB_BEFORE, TraceType.SUB_AFTER)),
    }  # fmt: skip
    assert {one.region_id for one in ours if one.type is not TraceType.SUB_AFTER} == {"DefaultRegion"}
    assert "Pub" in shown, shown


def run_mqadmin(folder: Path, namesrv: str, line: str) -> str:
    file = folder / "mqadmin.txt"
    file.write_text(line + "\n")
    (said,) = run_java("mqadmin", None, file, namesrv=namesrv)  # type: ignore[arg-type]
    return str(said)
