"""The messages of a queue between pulling and consuming, against a plain model; flow control; statistics."""

import random

import pytest
from pulled import QUEUE, message

from gantrymq.client.consumer.fetch.process_queue import FlowLimits, ProcessQueue
from gantrymq.client.consumer.statistics import ConsumerStatistics
from gantrymq.client.requests.received import restore_topic


def test_commit_offset_is_that_of_first_unconsumed_message(rng: random.Random) -> None:
    """Concurrently: whatever order they are removed in, nothing behind a message that is left is committed."""
    for _ in range(50):
        queue = ProcessQueue(QUEUE, 0)
        offsets = sorted(rng.sample(range(200), rng.randint(1, 40)))
        queue.put([message(offset, bytes(offset)) for offset in offsets], 200)
        left = list(offsets)
        while left:
            taken = rng.sample(left, rng.randint(1, len(left)))
            left = [offset for offset in left if offset not in taken]
            committed = queue.remove([message(offset) for offset in taken], 0)
            assert committed == (left[0] if left else 200)
            assert (queue.count, queue.size_bytes) == (len(left), sum(left))
            assert queue.span == (left[-1] - left[0] if left else 0)
        assert queue.remove([message(offsets[0])], 0) == -1


def test_returned_messages_are_taken_first(rng: random.Random) -> None:
    queue = ProcessQueue(QUEUE, 0)
    queue.put([message(offset) for offset in range(100)], 100)
    consumed: list[int] = []
    while batch := queue.take(rng.randint(1, 7), 0):
        if rng.random() < 0.4:
            queue.give_back(batch if rng.random() < 0.5 else None)
            continue
        consumed += [one.queue_offset for one in batch]
        assert queue.commit() == consumed[-1] + 1
    assert consumed == list(range(100))
    assert (queue.count, queue.size_bytes, queue.commit()) == (0, 0, -1)


def test_message_pulled_twice_counts_once() -> None:
    queue = ProcessQueue(QUEUE, 0)
    for _ in range(2):
        queue.put([message(5, b"four")], 6)
    assert (queue.count, queue.size_bytes) == (1, 4)


@pytest.mark.parametrize(
    ("offsets", "body", "full"),
    [
        (range(10), b"x", False),
        (range(11), b"x", True),  # more than 10 messages
        ([0, 1], bytes(3 << 20), True),  # more than 5 MiB
        ([0, 1], bytes(2 << 20), False),
        ([0, 101], b"x", True),  # further apart than 100
        ([0, 100], b"x", False),
    ],
)
def test_full_process_queue_pauses_pulls(offsets: range | list[int], body: bytes, full: bool) -> None:
    queue = ProcessQueue(QUEUE, 0)
    queue.put([message(offset, body) for offset in offsets], 200)
    assert queue.is_full(FlowLimits(10, 5, 100)) is full
    assert ProcessQueue(QUEUE, 0).is_full(FlowLimits(1, 1, 1)) is False


def test_messages_in_listener_count_towards_pull_threshold() -> None:
    queue = ProcessQueue(QUEUE, 0)
    queue.put([message(offset) for offset in range(4)], 4)
    queue.take(4, 0)
    assert queue.is_full(FlowLimits(3, 1, None))
    info = queue.info(0, 0)
    assert (info.cached_msg_count, info.transaction_msg_count, info.transaction_msg_max_offset) == (0, 4, 3)


def test_old_locks_and_pulls_expire() -> None:
    queue = ProcessQueue(QUEUE, 1000)
    assert [queue.is_lock_expired(1000 + after) for after in (30_000, 30_001)] == [False, True]
    assert [queue.is_pull_expired(1000 + after) for after in (120_000, 120_001)] == [False, True]


def test_retried_message_has_original_topic() -> None:
    again = message(0, topic="%RETRY%NS%g", RETRY_TOPIC="NS%T")
    for _ in range(2):
        restore_topic(again, "%RETRY%NS%g", "NS")
        assert again.topic == "T"
    other = message(0, topic="NS%U", RETRY_TOPIC="NS%T")  # sent by somebody who copied the properties
    restore_topic(other, "%RETRY%NS%g", "NS")
    assert other.topic == "U"


def test_message_id_is_unique_key_or_broker_id() -> None:
    assert message(0, UNIQ_KEY="ABC").msg_id == "ABC"
    assert message(0).msg_id == message(0).offset_msg_id == "7F00000100002A9F00000000000003E8"


def test_consumer_statistics_cover_last_minute_and_hour() -> None:
    statistics = ConsumerStatistics()
    for second in range(7200):
        statistics.pulled("T", 10, 4.0, second * 1000)
        statistics.consumed("T", 9, 1, 2.0, second * 1000)
    status = statistics.status("T", 7200 * 1000)
    assert status.pull_tps == pytest.approx(10, rel=0.05)
    assert status.consume_ok_tps == pytest.approx(9, rel=0.05)
    assert status.consume_failed_tps == pytest.approx(1, rel=0.05)
    assert (status.pull_rt, status.consume_rt) == (4.0, 2.0)
    assert status.consume_failed_msgs == pytest.approx(3600, rel=0.01)
    assert statistics.status("Other", 0).pull_tps == 0
