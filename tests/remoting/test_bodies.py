"""Bodies in JSON, as fastjson writes and reads them."""

import json

import pytest

from gantrymq.errors import RemotingCommandError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.bodies.group import (
    ConsumeStats,
    CustomizedRetryPolicy,
    OffsetWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from gantrymq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, encode_bits
from gantrymq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from gantrymq.remoting.bodies.topic import DataVersion, TopicConfig
from gantrymq.remoting.body import Body, by_queue, decode_body, keyed
from gantrymq.remoting.message_batch import BatchedMessage, decode_batch, encode_batch

ROUTE = TopicRouteData(
    queue_datas=[QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=6)],
    broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})],
)


def test_route_decodes_from_standard_and_fastjson() -> None:
    standard, fastjson = ROUTE.encode(), ROUTE.encode(standard=False)
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"' in standard
    assert b'"brokerAddrs":{0:"10.0.0.1:10911",1:' in fastjson
    assert decode_body(TopicRouteData, standard) == decode_body(TopicRouteData, fastjson) == ROUTE
    assert ROUTE.broker_datas[0].address == "10.0.0.1:10911"


def test_nulls_are_left_out_and_read_as_not_given() -> None:
    assert b"null" not in ROUTE.encode()
    body = decode_body(HeartbeatData, b'{"clientID":"x","producerDataSet":null,"consumerDataSet":[{"groupName":"g"}]}')
    assert body.producer_data_set == []
    assert body.consumer_data_set[0].group_name == "g"


def test_tables_by_queue_as_fastjson_writes_them() -> None:
    raw = (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T{1}"}:{"brokerOffset":9,'
        b'"consumerOffset":7,"lastTimestamp":1,"pullOffset":8},{"brokerName":"a","queueId":4,"topic":"U"}:{}}}'
    ).replace(b"{1}", b"")
    stats = decode_body(ConsumeStats, raw)
    table = by_queue(stats.offset_table)
    assert table[MessageQueue("T", "a", 3)] == OffsetWrapper(
        broker_offset=9, consumer_offset=7, pull_offset=8, last_timestamp=1
    )
    assert set(table) == {MessageQueue("T", "a", 3), MessageQueue("U", "a", 4)}
    ours = ConsumeStats(offset_table=keyed(table)).encode()
    assert b'{{"brokerName":"a","queueId":3,"topic":"T"}:{' in ours
    assert by_queue(decode_body(ConsumeStats, ours).offset_table) == table


def test_numbers_in_strings_are_left_alone() -> None:
    wrapper = SubscriptionGroupWrapper(forbidden_table={"g": {'a":1,"5': 2}})
    raw = wrapper.encode(standard=False)
    assert decode_body(SubscriptionGroupWrapper, raw).forbidden_table == {"g": {'a":1,"5': 2}}
    assert json.loads(wrapper.encode())["forbiddenTable"] == {"g": {'a":1,"5': 2}}


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"queueDatas":7}', b"{" * 100_000, b'{"a":"' + b'\\"' * 100_000])
def test_invalid_body_is_refused(raw: bytes) -> None:
    with pytest.raises(RemotingCommandError, match="no TopicRouteData"):
        decode_body(TopicRouteData, raw)


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (TopicConfig, b'{"readQueueNums":3000000000}'),
        (TopicConfig, b'{"perm":"-2147483649"}'),
        (TopicConfig, b'{"topicSysFlag":1e10}'),
        (DataVersion, b'{"counter":9223372036854775808}'),
        (SubscriptionGroupConfig, b'{"retryQueueNums":2147483648}'),
        (CustomizedRetryPolicy, b'{"next":[1,18446744073709551616]}'),
        (SubscriptionGroupWrapper, b'{"forbiddenTable":{"G":{"T":4294967296}}}'),
        (BrokerData, b'{"brokerName":"a","brokerAddrs":{18446744073709551616:"h:1"}}'),
        (SubscriptionData, b'{"topic":"T","subVersion":1180591620717411303424}'),
    ],
)
def test_body_number_outside_java_int_or_long_is_refused(body: type[Body], raw: bytes) -> None:
    with pytest.raises(RemotingCommandError, match="Expected `int`"):
        decode_body(body, raw)


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (HeartbeatData, b"{}"),
        (HeartbeatData, b'{"clientID":"c","producerDataSet":[{}]}'),
        (HeartbeatData, b'{"clientID":"c","consumerDataSet":[{"groupName":null}]}'),
        (HeartbeatData, b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{}]}]}'),
        (LockBatchRequestBody, b'{"consumerGroup":"G"}'),
        (UnlockBatchRequestBody, b'{"clientId":"c"}'),
        (QueryAssignmentRequestBody, b'{"consumerGroup":"G"}'),
        (SetMessageRequestModeRequestBody, b'{"topic":"T"}'),
    ],
)
def test_body_without_required_field_is_refused(body: type[Body], raw: bytes) -> None:
    with pytest.raises(RemotingCommandError, match="missing required field"):
        decode_body(body, raw)


def test_batch_round_trips() -> None:
    messages = [
        BatchedMessage(0, b"", b""),
        BatchedMessage(-1, b"body", b"TAGS\x01a\x02"),
        BatchedMessage(7, b"x", b""),
    ]
    assert decode_batch(encode_batch(messages)) == messages
    assert decode_batch(b"") == []


def test_counts_of_batch_are_checked_before_use() -> None:
    raw = encode_batch([BatchedMessage(0, b"body", b"A\x01b\x02")] * 2)
    for at in range(0, 22, 2):
        for value in (b"\xff\xff", b"\x00\x00", b"\x7f\xff"):
            damaged = raw[:at] + value + raw[at + 2 :]
            try:
                assert len(decode_batch(damaged)) == 2
            except RemotingCommandError:
                continue
    for end in range(1, len(raw)):
        if end != len(raw) // 2:
            with pytest.raises(RemotingCommandError):
                decode_batch(raw[:end])


def test_enums_of_cpp_client_are_read_as_numbers() -> None:
    raw = b'{"clientID":"x","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,'
    raw += b'"subscriptionDataSet":[{"subString":"*","subVersion":"1795281413243","topic":"t"}]}]}\n'
    (group,) = decode_body(HeartbeatData, raw).consumer_data_set
    assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert group.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert group.subscription_data_set[0].sub_version == 1795281413243


def test_batch_acknowledgement_writes_short_and_reads_long_names() -> None:
    ack = BatchAck(consumer_group="G", topic="T", retry="0", start_offset=5, queue_id=1, bit_set=encode_bits([0, 9]))
    body = BatchAckMessageRequestBody(broker_name="a", acks=[ack])
    assert b'{"c":"G","t":"T","r":"0","so":5,"q":1,"rq":0,"pt":0,"it":0,"b":"AQI="}' in body.encode()
    assert decode_body(BatchAckMessageRequestBody, body.encode()) == body
    long = b'{"brokerName":"a","acks":[{"consumerGroup":"G","topic":"T","startOffset":5,"queueId":1,"bitSet":"AQI="}]}'
    assert decode_body(BatchAckMessageRequestBody, long) == body
    assert ack.bits(10) == [0, 9]


@pytest.mark.parametrize(("bit_set", "most"), [("AQI=", 9), ("AQ", 8), ("!!!!", 8), ("/" * 4000, 100)])
def test_impossible_acknowledged_offsets_are_refused(bit_set: str, most: int) -> None:
    with pytest.raises(RemotingCommandError):
        BatchAck(consumer_group="G", topic="T", bit_set=bit_set).bits(most)


@pytest.mark.parametrize("bit_set", [None, "", "AAAA"])
def test_batch_ack_without_bits_has_no_offsets(bit_set: str | None) -> None:
    assert BatchAck(consumer_group="G", topic="T", bit_set=bit_set).bits(8) == []
