"""The compressed registration: what is written is read again, and damaged bytes are refused."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.bodies import registration
from gantrymq.remoting.bodies.registration import decode_compressed, encode_compressed
from gantrymq.remoting.bodies.route import TopicQueueMappingInfo
from gantrymq.remoting.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)

WORD = st.text(st.characters(exclude_categories=("Cs", "Zs", "Cc")), min_size=1, max_size=20)


def body_of(*topics: TopicConfig, mappings: tuple[TopicQueueMappingInfo, ...] = ()) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table={str(topic.topic_name): topic for topic in topics},
            topic_queue_mapping_info_map={str(one.topic): one for one in mappings},
            data_version=DataVersion(state_version=1, timestamp=2, counter=3),
        ),
        filter_server_list=["10.0.0.1:1"],
    )


ORDERS = TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=4, perm=6, attributes={"+a": "b"})
STATIC = TopicQueueMappingInfo(topic="orders", bname="broker-a", total_queues=2, curr_id_map={0: 0, 1: 1})


@given(
    st.lists(st.builds(TopicConfig, topic_name=WORD, perm=st.integers(0, 7), attributes=st.dictionaries(WORD, WORD)))
)
def test_decoding_inverts_encoding(topics: list[TopicConfig]) -> None:
    body = body_of(*topics, mappings=(STATIC,))
    assert decode_compressed(encode_compressed(body)) == body


def test_compressed_registration_lacks_flags_and_order() -> None:
    flagged = TopicConfig(topic_name="t", topic_sys_flag=3, order=True)
    read = decode_compressed(encode_compressed(body_of(flagged)))
    assert read.topic_config_serialize_wrapper.topic_config_table["t"] == TopicConfig(topic_name="t")


def test_number_outside_java_int_is_refused() -> None:
    wrong = TopicConfig(topic_name="t", read_queue_nums=3_000_000_000)
    with pytest.raises(RemotingCommandError, match="the body holds no topic: 't 3000000000 "):
        decode_compressed(encode_compressed(body_of(wrong)))


def test_registration_of_broker_before_5_has_no_mappings() -> None:
    plain = zlib.decompress(encode_compressed(body_of(ORDERS)))
    assert decode_compressed(zlib.compress(plain[:-4])) == body_of(ORDERS)


@pytest.mark.parametrize("cut", range(1, 12))
def test_truncated_body_is_refused(cut: int) -> None:
    raw = encode_compressed(body_of(ORDERS, mappings=(STATIC,)))
    with pytest.raises(RemotingCommandError):
        decode_compressed(raw[:-cut])
    plain = zlib.decompress(raw)
    with pytest.raises(RemotingCommandError):
        decode_compressed(zlib.compress(plain[:-cut]))


def test_damaged_counts_and_texts_never_raise_anything_else(rng: random.Random) -> None:
    plain = zlib.decompress(encode_compressed(body_of(ORDERS, mappings=(STATIC,))))
    for _ in range(500):
        damaged = bytearray(plain)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            decode_compressed(zlib.compress(damaged))
        except RemotingCommandError:
            continue


def test_body_decompressing_above_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MAX_INFLATED_BYTES", 1000)
    with pytest.raises(RemotingCommandError, match="beyond 1000 bytes"):
        decode_compressed(zlib.compress(bytes(100_000)))
