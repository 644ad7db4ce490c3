"""Settings and subscriptions of consumers, with RocketMQ's bounds."""

from datetime import datetime

import pytest

from gantrymq.client.consumer.settings import ConsumerConfig, LitePullConsumerConfig, PushConsumerConfig
from gantrymq.client.consumer.subscription import SQL92, TAG, subscription
from gantrymq.errors import ConfigError, MQClientError
from gantrymq.model.java import string_hash


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"consumer_group": "DEFAULT_CONSUMER"}, "consumerGroup"),
        ({"consumer_group": "a b"}, "consumerGroup"),
        ({"consume_thread_max": 0}, "consumeThreadMax"),
        ({"pull_threshold_for_queue": 65536}, "pullThresholdForQueue"),
        ({"pull_threshold_for_topic": 0}, "pullThresholdForTopic"),
        ({"pull_threshold_size_for_topic": 102_401}, "pullThresholdSizeForTopic"),
        ({"consume_message_batch_max_size": 1025}, "consumeMessageBatchMaxSize"),
        ({"pull_batch_size": 0}, "pullBatchSize"),
        ({"max_reconsume_times": -2}, "maxReconsumeTimes"),
        ({"consume_timestamp": "yesterday"}, "consumeTimestamp"),
    ],
)
def test_what_is_out_of_range_is_named(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        PushConsumerConfig("a:1", **({"consumer_group": "g"} | settings))  # type: ignore[arg-type]


def test_the_settings_of_lite_pull_fit_each_other() -> None:
    assert LitePullConsumerConfig("a:1", consumer_group="g").pull_batch_size == 10
    with pytest.raises(ConfigError, match="consumerTimeoutMillisWhenSuspend"):
        LitePullConsumerConfig("a:1", consumer_group="g", broker_suspend_max_time_ms=40_000)


def test_a_time_to_begin_at() -> None:
    config = ConsumerConfig("a:1", consumer_group="g", consume_timestamp="20240229123000")
    assert config.parse_consume_timestamp(0) == int(datetime(2024, 2, 29, 12, 30).timestamp() * 1000)
    assert ConsumerConfig("a:1", consumer_group="g").parse_consume_timestamp(1_800_000) == 0


def test_subscriptions() -> None:
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
