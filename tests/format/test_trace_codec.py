"""The text of message traces; what Java reads out of it: tests/interop/test_trace.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.trace import MessageType, TraceRecord, TraceType, decode_traces, encode_traces

PUB = TraceRecord(
    TraceType.PUB, 1_700_000_000_000, "DefaultRegion", "g", "T", "ID", "OFFSET", "a", "k1 k2", "127.0.0.1:10911",
    body_size_bytes=5, message_type=MessageType.DELAY, cost_ms=7, is_success=False,
)  # fmt: skip
WRITTEN = (
    "Pub\x011700000000000\x01DefaultRegion\x01g\x01T\x01ID\x01a\x01k1 k2\x01127.0.0.1:10911\x015\x017\x013\x01OFFSET"
    "\x01false\x02"
)


def test_record_is_written_as_java_writes_it() -> None:
    assert encode_traces([PUB]) == WRITTEN
    assert decode_traces(WRITTEN * 2) == ([PUB, PUB], [])
    after = TraceRecord(TraceType.SUB_AFTER, 5, group="g", msg_id="ID", request_id="R", cost_ms=1, context_code=4)
    assert encode_traces([after]) == "SubAfter\x01R\x01ID\x011\x01true\x01null\x014\x015\x01g\x02"
    assert decode_traces(encode_traces([after])) == ([after], [])


@pytest.mark.parametrize(
    ("text", "offset_msg_id", "is_success", "client_host"),
    [
        (WRITTEN.replace("\x01OFFSET", ""), "", False, ""),
        (WRITTEN.replace("false\x02", "true\x01host"), "OFFSET", True, "host"),
        (WRITTEN.replace("false\x02", "true\x01host\x01more"), "OFFSET", True, "host"),
    ],
)
def test_trace_records_of_other_releases_are_read(
    text: str, offset_msg_id: str, is_success: bool, client_host: str
) -> None:
    (record,), unread = decode_traces(text)
    assert (record.offset_msg_id, record.is_success, record.client_host) == (offset_msg_id, is_success, client_host)
    assert unread == []


@pytest.mark.parametrize("fields", [5, 6, 8])
def test_short_trace_record_of_listener_call_is_read(fields: int) -> None:
    text = "\x01".join(["SubAfter", "R", "ID", "1", "true", "k", "2", "9", "g"][: fields + 1])
    (record,), unread = decode_traces(text)
    wanted = (2 if fields > 5 else 0, 9 if fields > 6 else 0, "g" if fields > 6 else "")
    assert (record.keys, (record.context_code, record.timestamp_ms, record.group)) == ("k", wanted)
    assert unread == []


@pytest.mark.parametrize(
    "wrong",
    ["", "Pub", "Pub\x01x", "Sub\x011", WRITTEN.replace("\x013\x01", "\x019\x01"), WRITTEN.replace("17", "x", 1)],
)
def test_malformed_trace_records_are_returned_beside_valid_ones(wrong: str) -> None:
    wrong = wrong.rstrip("\x02")
    assert decode_traces(f"{WRITTEN}{wrong}\x02{WRITTEN}") == ([PUB, PUB], [wrong] if wrong else [])


def test_separator_in_field_does_not_end_it() -> None:
    (record,), _ = decode_traces(encode_traces([TraceRecord(TraceType.RECALL, topic="a\x01b\x02c")]))
    assert record.topic == "a b c"


@given(st.text(st.sampled_from("PubSAfter\x01\x02null0129-é"), max_size=60))
def test_arbitrary_trace_text_is_read_without_error(text: str) -> None:
    records, unread = decode_traces(text)
    assert decode_traces(encode_traces(records))[0] == records
    assert len(records) + len(unread) == len([part for part in text.split("\x02") if part])
