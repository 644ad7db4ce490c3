"""The table of ordered pops. The values are those of RocketMQ 5.5.0's QueueLevelConsumerManager for the same calls."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gantrymq.broker.tables.consumer_order_info import (
    ILLEGAL,
    MAX_OFFSETS,
    NOTHING_TO_COMMIT,
    UNUSED_MS,
    ConsumerOrderInfo,
)
from gantrymq.clock import ManualClock
from gantrymq.errors import RemotingError
from gantrymq.model.java import LONG_MAX
from gantrymq.store.config_files import parse_config, table_problems

NOW = 1_700_000_000_000
INVISIBLE_MS = 3000


class OrderCase:
    """A table whose lock times are recorded in ``freed``."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.freed: list[tuple[str, str, int, int]] = []
        self.table = ConsumerOrderInfo(self.clock, lambda *one: self.freed.append(one))

    def pop(self, *offsets: int, attempt: str | None = None, pop_time_ms: int = NOW, queue_id: int = 0) -> str:
        entries = self.table.update(attempt, "T", "G", queue_id, pop_time_ms, INVISIBLE_MS, offsets)
        return ";".join(entries)

    def ack(self, offset: int, pop_time_ms: int = NOW, *, group: str = "G", queue_id: int = 0) -> int:
        return self.table.commit_and_next("T", group, queue_id, offset, pop_time_ms)

    def is_blocked(self, attempt: str | None = None) -> bool:
        return self.table.check_block(attempt, "T", "G", 0, INVISIBLE_MS)

    def lock_free_ms(self) -> int | None:
        info = self.table.get("T", "G", 0)
        return None if info is None else info.lock_free_timestamp(NOW)


@pytest.fixture
def case() -> OrderCase:
    return OrderCase()


def test_deliveries_are_counted(case: OrderCase) -> None:
    assert case.pop(1, 2, 3) == "0 0 0"
    assert case.pop(2, 3, 4, attempt="a1") == "0 qo0%2 1;0 qo0%3 1;0 0 0"
    assert case.pop(2, 3, attempt="a1") == "0 qo0%2 1;0 qo0%3 1;0 0 1"  # the same attempt again
    assert case.pop(2, 3, 17, 16, 32, 1 << 40, attempt="a2") == "0 qo0%2 2;0 qo0%3 2;0 0 0"
    assert case.pop(9, attempt="a3") == "0 0 0"
    assert case.table.update(None, "%RETRY%G+T", "G", 10, NOW, INVISIBLE_MS, [7]) == ["2 10 0"]


def test_offset_to_commit_is_that_of_first_unacknowledged_message(case: OrderCase) -> None:
    case.pop(2, 3, 4)
    assert [case.ack(2), case.ack(4), case.ack(4), case.ack(3)] == [3, 3, 3, 5]


def test_acknowledgement_of_unknown_offset_commits_nothing(case: OrderCase) -> None:
    case.pop(2, 3, 4)
    assert case.ack(99) == ILLEGAL
    assert case.ack(3, NOW + 1) == NOTHING_TO_COMMIT
    assert case.is_blocked()


def test_commit_without_pop_takes_next_offset(case: OrderCase) -> None:
    case.pop(2)
    assert case.ack(3, queue_id=1) == case.ack(3, group="H") == 4


def test_queue_is_blocked_until_all_messages_are_acknowledged(case: OrderCase) -> None:
    assert not case.is_blocked()
    case.pop(1, 2)
    assert case.is_blocked()
    case.ack(1)
    assert case.is_blocked()
    case.ack(2)
    assert not case.is_blocked()


def test_queue_is_blocked_until_all_messages_are_visible(case: OrderCase) -> None:
    case.pop(1, 2)
    case.table.update_next_visible_time("T", "G", 0, 2, NOW, NOW + 2 * INVISIBLE_MS)
    case.clock.advance(2 * INVISIBLE_MS - 1)
    assert case.is_blocked()
    case.clock.advance(1)
    assert not case.is_blocked()


def test_repeated_attempt_is_not_blocked(case: OrderCase) -> None:
    case.pop(1, attempt="a1")
    assert not case.is_blocked("a1")
    assert case.is_blocked("a2")
    case.pop(1)
    assert case.is_blocked()  # no attempt id is no id


def test_cleared_queue_is_not_blocked(case: OrderCase) -> None:
    case.pop(1)
    case.table.clear_block("T", "G", 0)
    assert not case.is_blocked()
    case.pop(1)
    case.table.remove("T", "G")
    assert not case.is_blocked()
    assert len(case.table) == 0


def test_lock_is_free_when_last_message_is_visible(case: OrderCase) -> None:
    assert case.lock_free_ms() is None
    case.pop(1, 2)
    assert case.lock_free_ms() == NOW + INVISIBLE_MS
    case.table.update_next_visible_time("T", "G", 0, 2, NOW, NOW + 9000)
    assert case.lock_free_ms() == NOW + 9000
    case.ack(2)
    case.ack(1)
    assert [free_at for *_, free_at in case.freed] == [NOW + INVISIBLE_MS, NOW + 9000, NOW + INVISIBLE_MS, NOW]
    assert {one[:3] for one in case.freed} == {("T", "G", 0)}


def test_visible_time_of_old_pop_or_other_message_is_ignored(case: OrderCase) -> None:
    case.pop(1, 2)
    for offset, pop_time_ms in ((1, NOW - 1), (400, NOW)):
        case.table.update_next_visible_time("T", "G", 0, offset, pop_time_ms, LONG_MAX)
    case.table.update_next_visible_time("T", "H", 0, 1, NOW, LONG_MAX)
    assert case.lock_free_ms() == NOW + INVISIBLE_MS
    case.table.update_next_visible_time("T", "G", 0, 1, NOW, LONG_MAX + 5)
    assert case.lock_free_ms() == LONG_MAX


def test_ordered_pop_records_at_most_64_messages(case: OrderCase) -> None:
    case.pop(*range(100, 100 + MAX_OFFSETS))
    assert {case.ack(offset) for offset in range(101, 164)} == {100}
    assert case.is_blocked()
    assert case.ack(100) == 164
    assert content(case.table)["table"]["T@G"][0]["cm"] == -1  # a Java long
    with pytest.raises(ValueError, match="more than 64"):
        case.pop(*range(65))


def test_long_attempt_id_is_refused(case: OrderCase) -> None:
    with pytest.raises(RemotingError, match="attempt id"):
        case.pop(1, attempt="x" * 513)


def test_unused_order_info_is_dropped(case: OrderCase) -> None:
    for queue_id in (0, 7):
        case.pop(1, queue_id=queue_id)
    for topic, group in (("U", "G"), ("T", "H")):
        case.table.update(None, topic, group, 0, NOW, INVISIBLE_MS, [1])
    clean = ("T".__eq__, "G".__eq__)
    case.table.auto_clean(lambda topic: 4 if clean[0](topic) else None, clean[1])
    assert len(case.table) == 1
    assert case.table.get("T", "G", 0) is not None
    assert case.table.get("T", "G", 7) is None
    case.clock.advance(UNUSED_MS + 1)
    edits = case.table.edits
    case.table.auto_clean(lambda topic: 4, lambda group: True)
    assert (len(case.table), case.table.edits > edits) == (0, True)


# What Java's encode(true) printed after the calls of the test below, with its time replaced by NOW.
JAVA_FILE = """{
	"orderInfoCount":1,
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"T@G":{
			0:{
				"a":"a2",
				"cm":2,
				"i":3000,
				"l":1700000000000,
				"o":[2,1,15,14,30,1099511627774],
				"oc":{
					2:2,
					3:2
				},
				"ot":{
					2:1700000010000
				},
				"popTime":1700000000000
			},
			3:{
				"cm":0,
				"i":3000,
				"l":1700000000000,
				"o":[9],
				"popTime":1700000000000
			}
		}
	}
}"""


def content(table: ConsumerOrderInfo) -> dict[str, Any]:
    return table.snapshot()()


def test_order_info_file_equals_that_of_java(case: OrderCase) -> None:
    case.pop(1, 2, 3)
    case.pop(2, 3, 4, attempt="a1")
    case.pop(2, 3, 17, 16, 32, 1 << 40, attempt="a2")
    case.ack(3)
    case.table.update_next_visible_time("T", "G", 0, 2, NOW, NOW + 10_000)
    case.pop(9, queue_id=3)
    java = parse_config(JAVA_FILE.encode())
    assert list(table_problems("consumerOrderInfo.json", java)) == []
    assert json.dumps(content(case.table)) == json.dumps(java)  # the order of the fields as well
    loaded = OrderCase()
    loaded.table.load(java)
    assert content(loaded.table) == content(case.table)
    assert loaded.is_blocked()
    assert ("T", "G", 0, NOW + 10_000) in loaded.freed


def test_entry_without_invisible_time_gets_time_of_next_pop(case: OrderCase) -> None:
    case.table.load(parse_config(b'{"table":{"T@G":{0:{"popTime":1,"i":null,"o":[5]}}}}'))
    assert case.table.check_block("x", "T", "G", 0, 1 << 50)
    assert content(case.table)["table"]["T@G"] == {0: {"cm": 0, "i": 1 << 50, "l": 0, "o": [5], "popTime": 1}}


@pytest.mark.parametrize("entry", ['{"o":[]}', "{}", '{"o":null}'])
def test_empty_entry_blocks_nothing(case: OrderCase, entry: str) -> None:
    case.table.load(parse_config(f'{{"table":{{"T@G":{{0:{entry}}}}}}}'.encode()))
    assert not case.is_blocked()
    assert case.ack(1, 0) == ILLEGAL
    assert case.freed == []


@pytest.mark.parametrize("table", ["[]", '{"T@G":[]}', '{"T@G":{"x":{}}}', '{"T@G":{0:{"o":"x"}}}'])
def test_order_info_of_other_shape_is_refused(case: OrderCase, table: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        case.table.load(parse_config(f'{{"table":{table}}}'.encode()))


def test_entry_with_more_than_64_messages_is_refused(case: OrderCase) -> None:
    with pytest.raises(msgspec.ValidationError, match="more than 64"):
        case.table.load({"table": {"T@G": {"0": {"o": list(range(65))}}}})
