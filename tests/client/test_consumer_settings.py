"""Settings and subscriptions of consumers, with RocketMQ's bounds."""

import re
import sys
from dataclasses import fields
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from gantrymq.client.consumer.settings import (
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumerConfig,
    MessageModel,
    PushConsumerConfig,
)
from gantrymq.client.producer.compression import CompressionType
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.subscription import SQL92, TAG, subscription
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError, MQClientError
from gantrymq.model.java import LONG_MAX, string_hash
from gantrymq.remoting.codes import SerializeType


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"consumer_group": "DEFAULT_CONSUMER"}, "consumerGroup"),
        ({"consumer_group": "a b"}, "consumerGroup"),
        ({"consume_thread_max": 0}, "consumeThreadMax"),
        ({"pull_threshold_for_queue": 65536}, "pullThresholdForQueue"),
        ({"pull_threshold_for_topic": 0}, "pullThresholdForTopic"),
        ({"pull_threshold_size_for_topic": 0}, "pullThresholdSizeForTopic"),
        ({"pull_threshold_size_for_topic": 102_401}, "pullThresholdSizeForTopic"),
        ({"consume_message_batch_max_size": 1025}, "consumeMessageBatchMaxSize"),
        ({"pull_batch_size": 0}, "pullBatchSize"),
        ({"max_reconsume_times": -2}, "maxReconsumeTimes"),
        ({"consume_timestamp": "yesterday"}, "consumeTimestamp"),
    ],
)
def test_setting_out_of_range_is_named_in_error(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        PushConsumerConfig("a:1", **({"consumer_group": "g"} | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pull_batch_size": 1.5}, "pullBatchSize=1.5 is not allowed: a whole number"),
        ({"pull_batch_size": "32"}, "pullBatchSize='32' is not allowed: a whole number"),
        ({"pull_batch_size": True}, "pullBatchSize=True is not allowed: a whole number"),
        ({"consumer_group": b"g"}, "consumerGroup=b'g' is not allowed: a text"),
        ({"message_model": "broadcast"}, "messageModel='broadcast' is not allowed: one of CLUSTERING, BROADCASTING"),
        ({"message_model": MessageModel}, "is not allowed: one of CLUSTERING, BROADCASTING"),
        ({"consume_from_where": 0}, "consumeFromWhere=0 is not allowed: one of CONSUME_FROM_LAST_OFFSET, "),
    ],
)
def test_setting_of_wrong_type_is_named_in_error(settings: dict[str, Any], said: str) -> None:
    for config in (PushConsumerConfig, LitePullConsumerConfig):
        with pytest.raises(ConfigError, match=re.escape(said)):
            config("a:1", **({"consumer_group": "g"} | settings))


@pytest.mark.parametrize("config", [PushConsumerConfig, LitePullConsumerConfig, ProducerConfig])
def test_setting_of_wrong_type_is_refused(config: type[ClientConfig]) -> None:
    group = {} if config is ProducerConfig else {"consumer_group": "g"}
    unchecked = {"secret_key", "security_token", "tls", "allocate_message_queue_strategy", "local_offset_store_dir"}
    for spec in fields(config):
        if spec.name not in unchecked:
            with pytest.raises(ConfigError, match=r"=\(None,\) is not allowed"):
                config(**({"name_servers": "a:1"} | group | {spec.name: (None,)}))  # type: ignore[arg-type]


def test_enum_setting_accepts_text_of_item() -> None:
    consumer: Any = {"message_model": "BROADCASTING", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    config = PushConsumerConfig("a:1", consumer_group="g", **consumer)
    assert config.message_model is MessageModel.BROADCASTING
    assert config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    producer: Any = {"compression_type": "LZ4", "serialize_type": "ROCKETMQ"}
    made = ProducerConfig("a:1", **producer)
    assert (made.compression_type, made.serialize_type) == (CompressionType.LZ4, SerializeType.ROCKETMQ)


def test_values_of_other_libraries_are_converted() -> None:
    class Address(str):
        """As numpy and enums of texts have their own."""

    given: Any = {"send_msg_timeout_ms": np.int64(5000), "default_topic_queue_nums": np.uint8(8)}
    config = ProducerConfig(Address("a:1"), **given)
    assert config.name_server_list == ["a:1"]
    assert [type(config.send_msg_timeout_ms), config.send_msg_timeout_ms] == [int, 5000]
    assert [type(config.default_topic_queue_nums), config.default_topic_queue_nums] == [int, 8]
    for wrong in (np.float64(5000), np.bool_(True), np.array([1, 2])):
        with pytest.raises(ConfigError, match=r"sendMsgTimeout=.* is not allowed: a whole number"):
            ProducerConfig("a:1", send_msg_timeout_ms=wrong)  # type: ignore[arg-type]


def test_credentials_and_namespace_accept_none() -> None:
    nothing: Any = dict.fromkeys(("access_key", "secret_key", "security_token", "namespace"))
    config = ClientConfig("a:1", **nothing)
    assert (config.access_key, config.namespace, config.credentials) == ("", "", None)
    with pytest.raises(ConfigError, match="producerGroup=None is not allowed: a text"):
        ProducerConfig("a:1", producer_group=None)  # type: ignore[arg-type]


def test_inconsistent_settings_of_lite_pull_are_refused() -> None:
    assert LitePullConsumerConfig("a:1", consumer_group="g").pull_batch_size == 512
    with pytest.raises(ConfigError, match="consumerTimeoutMillisWhenSuspend"):
        LitePullConsumerConfig("a:1", consumer_group="g", broker_suspend_max_time_ms=40_000)


@pytest.mark.parametrize(
    "name",
    [
        "suspend_current_queue_time_ms",
        "await_termination_ms_when_shutdown",
        "pull_time_delay_ms_when_exception",
        "pull_threshold_for_all",
        "poll_timeout_ms",
        "consumer_timeout_ms_when_suspend",
        "topic_metadata_check_interval_ms",
    ],
)
def test_java_long_setting_accepts_largest_long(name: str) -> None:
    kinds: list[type[ClientConfig]] = [PushConsumerConfig, LitePullConsumerConfig]
    for config in [one for one in kinds if name in one.__dataclass_fields__]:
        for most in (LONG_MAX, sys.maxsize):
            given: Any = {"consumer_group": "g", name: most}
            assert getattr(config("a:1", **given), name) == most
        with pytest.raises(ConfigError, match=f"at most {LONG_MAX}"):
            config("a:1", **(given | {name: LONG_MAX + 1}))


def test_consume_timestamp_is_parsed_in_local_time() -> None:
    config = ConsumerConfig("a:1", consumer_group="g", consume_timestamp="20240229123000")
    assert config.parse_consume_timestamp(0) == int(datetime(2024, 2, 29, 12, 30).timestamp() * 1000)
    assert ConsumerConfig("a:1", consumer_group="g").parse_consume_timestamp(1_800_000) == 0


def test_subscription_parses_tags_and_hashes() -> None:
    both = subscription("T", "TagA || TagB||", TAG, 7)
    assert (both.tags_set, both.sub_string, both.sub_version) == (["TagA", "TagB"], "TagA || TagB||", 7)
    assert sorted(both.code_set) == sorted(map(string_hash, ("TagA", "TagB")))
    for everything in ("*", ""):
        assert (subscription("T", everything, TAG, 0).sub_string, subscription("T", everything, TAG, 0).tags_set) == (
            "*",
            [],
        )
    assert subscription("T", "a > 1", SQL92, 0).tags_set == []
    with pytest.raises(MQClientError, match="split error"):
        subscription("T", "||", TAG, 0)
    with pytest.raises(MQClientError, match="can't be null"):
        subscription("T", "", SQL92, 0)
