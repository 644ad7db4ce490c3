import copy
import pickle
import tracemalloc
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantrymq.client.requests.calls import PullResult, PullStatus
from gantrymq.client.requests.received import ReceivedMessage, pulled_messages
from gantrymq.client.requests.records import decode_records
from gantrymq.client.requests.subscription import TAG, subscription
from gantrymq.errors import RemotingCommandError
from gantrymq.format.properties import encode_properties
from gantrymq.format.record import Layout, body_crc, decode_record, encode_record, read_layout
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage
from gantrymq.model.message_queue import MessageQueue

NUMBERS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), NUMBERS)


@st.composite
def a_record(draw: st.DrawFn) -> bytes:
    """A record with any bytes as its topic and properties."""
    body, version = draw(st.binary(max_size=200)), draw(st.sampled_from([1, 2]))
    message = StoredMessage(
        "", draw(NUMBERS), draw(LONGS), draw(LONGS), 0, draw(NUMBERS), draw(st.integers(0, 15)), draw(LONGS),
        draw(HOSTS), draw(LONGS), draw(HOSTS), draw(NUMBERS), draw(LONGS), body_crc(body), body, {}, version,
    )  # fmt: skip
    usual = encode_properties({"UNIQ_KEY": "7F" * 16, "TAGS": "TagA", "KEYS": "k1 k2"})
    pieces = st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"A", b"", "é".encode(), b"\xed\xa0\x80", b"\xc3"])
    properties = draw(st.binary(max_size=100) | st.just(usual) | st.lists(pieces, max_size=12).map(b"".join))
    return encode_record(message, draw(st.binary(max_size=127)), properties)


def eager(records: bytes) -> tuple[list[StoredMessage], str]:
    """What the reference decoder returns, and its error."""
    view, position, messages = memoryview(records), 0, []
    while position < len(view):
        layout = read_layout(view, position, len(view))
        if not isinstance(layout, Layout):
            return messages, f"pulled records: at byte {position} of {len(view)} is {layout.value}"
        messages.append(decode_record(view, position, layout))
        position += layout.size
    return messages, ""


def lazy(records: bytes) -> tuple[list[StoredMessage], str]:
    """What the lazy decoder returns, and its error."""
    messages: list[StoredMessage] = []
    try:
        for message in decode_records(records, decompressed=False):
            messages.append(message)
    except RemotingCommandError as error:
        return messages, str(error)
    return messages, ""


@settings(max_examples=150, deadline=None)
@given(st.lists(a_record(), max_size=5), st.data())
def test_lazy_messages_of_damaged_records_equal_eager_ones(records: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.sampled_from([len(raw), data.draw(st.integers(0, len(raw)))]))])
    expected, error = eager(cut)
    messages, lazy_error = lazy(cut)
    assert lazy_error == error
    names = data.draw(st.permutations([field.name for field in fields(StoredMessage)]))
    for message, wanted in zip(messages, expected, strict=True):
        assert (message.tags, message.keys) == (wanted.tags, wanted.keys)  # before the properties are decoded
        for name in names:
            assert getattr(message, name) == getattr(wanted, name), name
        assert (message, repr(message), message.tags, message.keys) == (wanted, repr(wanted), wanted.tags, wanted.keys)


def usual_record(body: bytes, queue_offset: int = 3) -> bytes:
    host = Host(b"\x7f\0\0\1", 10911)
    properties = {"UNIQ_KEY": "7F" * 16, "KEYS": "key-1", "WAIT": "true", "TAGS": "TagA"}
    message = StoredMessage(
        "", 0, queue_offset, 9, 0, 0, 0, 1, host, 2, host, 0, 0, body_crc(body), body, properties
    )  # fmt: skip
    return encode_record(message, b"TopicTest", encode_properties(properties))


def test_lazy_message_is_copied_pickled_and_changed_as_eager_one() -> None:
    records = usual_record(b"abc") * 2
    (first, second), (wanted, _) = list(decode_records(records)), eager(records)[0]
    assert pickle.dumps(first) == pickle.dumps(wanted)
    assert pickle.loads(pickle.dumps(second)) == copy.copy(second) == wanted
    second.topic, second.properties = "other", {"TAGS": "B"}
    assert (second.topic, second.tags, second.queue_id) == ("other", "B", 0)
    with pytest.raises(AttributeError, match="'StoredMessage' object has no attribute 'colour'"):
        second.colour  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="'StoredMessage' object has no attribute 'colour'"):
        wanted.colour  # type: ignore[attr-defined]  # noqa: B018


def test_body_with_wrong_crc_in_middle_of_pull_is_delivered_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    damaged = usual_record(b"abc").replace(b"abc", b"abd")
    bodies = [message.body for message in decode_records(usual_record(b"1") + damaged + usual_record(b"2"))]
    assert bodies == [b"1", b"abd", b"2"]
    assert "a body has a wrong CRC" in caplog.text


def pulled(count: int, body: bytes) -> list[ReceivedMessage]:
    records = b"".join(usual_record(body, 1000 + number) for number in range(count))
    result = PullResult(PullStatus.FOUND, 0, 5, 9, 0, records)
    queue, wanted = MessageQueue("TopicTest", "broker-a", 0), subscription("TopicTest", "*", TAG, 0)
    return pulled_messages(result, queue, wanted, decompressed=True, max_decompressed_body_size=1 << 20)


def test_pulled_message_has_broker_and_bounds_of_pull() -> None:
    (message,) = pulled(1, b"abc")
    assert (message.broker_name, message.min_offset, message.max_offset) == ("broker-a", 5, 9)
    assert (message.msg_id, message.consume_start_ms, message.in_listener_since_ms) == ("7F" * 16, 0, None)


def test_messages_in_hand_take_little_more_than_their_records() -> None:
    pulled(600, bytes(1024))  # modules are loaded
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        messages = [message for _ in range(10) for message in pulled(1000, bytes(1024)) if message.body]
        taken = tracemalloc.get_traced_memory()[0] - before
        one = messages[4321]
        del messages
        of_one = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    size = len(usual_record(bytes(1024)))
    assert taken / (10_000 * size) <= 1.3
    assert one.body == bytes(1024)
    assert of_one < 20_000  # not the pull
