"""A message that goes into the log as it came is what it would be, had it been taken apart first."""

from __future__ import annotations

import random

import pytest
from wire_files import file_of, written

from gantrymq.broker.appends.send_properties import PlainProperties, plain_properties, read_properties
from gantrymq.broker.appends.wire_messages import WireMessage
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.properties import encode_properties
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.store.log.appendable import AppendableMessage

HOSTS = ("127.0.0.1:10911", "[::1]:10911")
MORE = {"MSG_REGION": "DefaultRegion"}


def test_plain_properties_are_accepted_only_if_decoding_keeps_them(rng: random.Random) -> None:
    taken = 0
    names = ("UNIQ_KEY", "WAIT", "DELAY", "TRACE_ON", "a", "ü")
    pieces = [*names, *(f"{name}\x01v" for name in names), "\ud800", "\x01", "\x02", "\x02", "TRUE", "false"]
    for _ in range(20_000):
        text = "".join(rng.choices(pieces, k=rng.randrange(9)))
        properties = read_properties(text)
        found = plain_properties(text, encode_properties(MORE).decode())
        if found is None:
            continue
        taken += 1
        assert found.encoded == encode_properties(properties | MORE)
        assert found.unique_key == properties["UNIQ_KEY"]
        assert found.wait_store_msg_ok == (properties.get("WAIT", "true").lower() == "true")
        assert properties.keys().isdisjoint({"DELAY", "TRACE_ON"})
    assert taken > 20


@pytest.mark.parametrize(
    "text",
    [
        "UNIQ_KEY\x01k\x02WAIT\x01true\x02",
        "TAGS\x01a\x02UNIQ_KEY\x01k",
    ],
)
def test_properties_of_producers_are_plain(text: str) -> None:
    assert plain_properties(text, "") == PlainProperties(encode_properties(read_properties(text)), "k", True)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "TAGS\x01a\x02", "UNIQ_KEY\x01k\x02DELAY\x013\x02", "UNIQ_KEY\x01k\x02UNIQ_KEY\x01k\x02"),
        *("UNIQ_KEY\x01k\x02a\x02", "UNIQ_KEY\x01k\x02a\x01\x02", "UNIQ_KEY\x01k\x01l\x02", "UNIQ_KEY\x01k\x02\x02"),
    ],
)
def test_properties_with_effect_exclude_send_from_run(text: str | None) -> None:
    assert plain_properties(text, "") is None


@pytest.mark.parametrize("store", HOSTS)
def test_record_of_wire_message_equals_record_of_decoded_message(rng: random.Random, store: str) -> None:
    host, now_ms = Host.parse(store), 1_800_000_000_000
    for _ in range(50):
        properties = {"UNIQ_KEY": rng.randbytes(16).hex(), "TAGS": "t" * rng.randint(1, 9)}
        message = Message(
            "topic" * rng.randint(1, 5), rng.randbytes(rng.randrange(300)), rng.randrange(8), properties=properties,
            flag=rng.randint(-5, 5), sys_flag=rng.choice([0, 1, 0x30]), born_host=Host.parse(rng.choice(HOSTS)),
            born_timestamp_ms=rng.choice([0, 1_700_000_000_000]), reconsume_times=rng.randrange(3),
        )  # fmt: skip
        one = WireMessage(
            message.topic, message.body, message.queue_id, message.sys_flag, message.born_timestamp_ms,
            message.born_host, message.reconsume_times, True, message.flag, encode_properties(properties),
        )  # fmt: skip
        queue_offset, file = rng.randrange(1 << 40), file_of(rng)
        begin = file.wrote_position
        phy_offset = file.file_from_offset + begin
        alone = AppendableMessage(message)
        assert alone.check(MessageStoreConfig(), host) is one.check(MessageStoreConfig(), host)
        wanted = alone.encode(queue_offset, phy_offset, now_ms)
        assert one.write(file, queue_offset, now_ms, host) == [phy_offset]
        assert written(file, begin) == wanted
        assert one.size_bytes == alone.size_bytes == len(wanted)
