"""A store directory with all that the console shows: topics, groups, dead letters, odd texts, waiting messages."""

from __future__ import annotations

import json
from pathlib import Path

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey, encode_pop_ack, encode_pop_checkpoint
from gantrymq.format.timer import MIN_TIMER_FILE_BYTES
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import REVIVE_TOPIC_PREFIX, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, Message
from gantrymq.store.message_store import MessageStore
from store_cases import await_dispatch
from timer_cases import TimerCase

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=65_536,
    mapped_file_size_consume_queue=4_000,
    max_hash_slot_num=500,
    max_index_num=2_000,
    mapped_file_size_timer_log=MIN_TIMER_FILE_BYTES + 100 * 52,
    broker_ip1="10.0.0.1",
)
SIZES = frozenset(
    {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "brokerIP1"}
)
HTML = "<script>alert('x')</script>"
ESCAPES = "red \x1b[31m and \u202ereversed"
DEAD_LETTERS = "%DLQ%billing"


def make(path: Path, now_ms: int, messages: int = 1_000) -> None:
    """A closed store whose newest messages are of ``now_ms``."""
    clock = ManualClock(now_ms - (messages + 20) * 1_000)
    with MessageStore.open(path, CONFIG, given=SIZES, clock=clock, housekeeping=False) as store:
        for number in range(messages):
            body = b'{"order":%d,"amount":%d,"currency":"EUR","lines":[1,2,3]}' % (number, number * 37 % 1000)
            tags, topic = "paid" if number % 3 else "refunded", "orders" if number % 5 else "payments"
            store.put(Message(topic, body, queue_id=number % 4, tags=tags, keys=[f"order-{number}"]))
            clock.advance(1_000)
        store.put(Message("odd-names", f"{HTML} {ESCAPES}".encode(), tags=HTML[:60], keys=[HTML, ESCAPES]))
        store.put(Message("odd-names", bytes(range(256)) * 4, keys=["binary"]))
        for number in range(12):
            store.put(Message(DEAD_LETTERS, b"dead %d" % number, keys=[f"order-{number}"]))
        store.put(Message("%RETRY%billing", b"again"))
        await_dispatch(store)
    _leave_waiting(path, clock)
    offsets = {
        "orders@billing": {"0": 120, "1": 200, "2": 90, "3": 150},
        "payments@billing": {"0": 10, "1": 50, "2": 50, "3": 50},
        "orders@reporting": {"0": 0, "9": 4},
        "odd-names@" + HTML: {"0": 1},
    }
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    table = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"orders": table}}))


def _leave_waiting(path: Path, clock: ManualClock) -> None:
    """Messages of each kind that a broker has not delivered."""
    case = TimerCase(RealFileSystem(), path, clock=clock, config=CONFIG)
    for number in range(40):
        case.store.put(Message("orders", b'{"retry":%d}' % number, queue_id=number % 4, delay_level=5 + number % 12))
        case.send(b'{"reminder":%d}' % number, topic="reminders", deliver_ms=clock.now_ms() + (number + 1) * 180_000)
    for _ in range(6):
        transaction = {"TRAN_MSG": "true", "PGROUP": "payment-service", "REAL_TOPIC": "payments", "REAL_QID": "0"}
        case.store.put(Message(TRANS_HALF_TOPIC, b"half", properties=transaction, born_timestamp_ms=clock.now_ms()))
    case.store.put(Message(TRANS_OP_HALF_TOPIC, b"1,", tags="d"))
    point = PopCheckpoint(PopKey("orders", "billing", 3, 40, clock.now_ms(), "broker-a"), 1_200_000, [0, 1, 2])
    ack = PopAck(point.key, (41,))
    for tag, body, due_ms in (("ck", encode_pop_checkpoint(point), 1_199_000), ("ack", encode_pop_ack(ack), 1_200_000)):
        topic = REVIVE_TOPIC_PREFIX + "DefaultCluster"
        case.send(body, topic=topic, deliver_ms=clock.now_ms() + due_ms, TAGS=tag)
    case.step()
    case.close()
