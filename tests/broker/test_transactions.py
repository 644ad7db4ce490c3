"""Transactional messages: half messages, their ends, and the check of those that have none, with a clock that is moved.

What the records must be is what the real broker stores: tests/golden/broker-features has such transactions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.broker import names
from gantrymq.broker.appends.send_properties import prepared_properties
from gantrymq.broker.processors import send_steps
from gantrymq.broker.transactions import decisions
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType
from gantrymq.errors import RemotingTimeoutError
from gantrymq.format.op_message import decided_offsets
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from gantrymq.model.message import StoredMessage
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import HeartbeatRequestHeader
from gantrymq.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    SendMessageResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

pytestmark = pytest.mark.asyncio

NOW_MS, NEVER_MS = 1_700_000_000_000, 1 << 40
HALF, OP, DISCARDED = names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC


class Transactions:
    """A broker with a clock of its own, and a producer of the group P that hears what it is asked."""

    def __init__(self, case: BrokerCase, clock: ManualClock) -> None:
        self.case, self.clock = case, clock
        self.asked: list[tuple[CheckTransactionStateRequestHeader, StoredMessage]] = []

    async def connect(self, group: str = "P") -> None:
        dispatcher = RequestDispatcher({RequestCode.CHECK_TRANSACTION_STATE: self._check})
        client = self.case.another_client(dispatcher)
        data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name=group)])
        request = RemotingCommand.request(HeartbeatRequestHeader(), data.encode())
        assert (await client.invoke(self.case.server.address, request, 10_000)).code == 0

    def _check(self, channel: Channel, request: RemotingCommand) -> None:
        self.asked.append((request.read(CheckTransactionStateRequestHeader), messages_of(request.body)[0]))

    async def prepare(self, body: bytes = b"body", topic: str = "T", **more: Any) -> SendMessageResponseHeader:
        properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U", **more.pop("properties", {})}
        fields = {"sys_flag": TRANSACTION_PREPARED, "queue_id": 1, **more}
        response = await self.case.send(topic, body, properties=properties, **fields)
        assert response.code == ResponseCode.SUCCESS, response.remark
        return response.read(SendMessageResponseHeader)

    async def end(self, half: SendMessageResponseHeader, state: int, **more: Any) -> RemotingCommand:
        return await self.case.ask(end_header(half.queue_offset, int(half.msg_id[-16:], 16), state, **more))

    async def answer(self, state: int, which: int = -1) -> RemotingCommand:
        header, _ = self.asked[which]
        return await self.case.ask(
            end_header(
                header.tran_state_table_offset, header.commit_log_offset, state, from_transaction_check=True, topic=HALF
            )
        )

    async def check(self, after_ms: int = 30_000) -> None:
        """One check, that much later."""
        self.clock.advance(after_ms)
        await self.case.server._transaction_check.check()
        await asyncio.sleep(0.02)  # so that the producer hears of it

    async def write_ops(self) -> None:
        self.case.server._ops.write_all()
        while self.case.server._ops.count:
            await asyncio.sleep(0.001)

    async def published(self) -> tuple[int, int]:
        """The committed offsets in the half queue and in the op queue, once the log is durable."""
        server = self.case.server
        await server.store.until_durable(server.store.max_phy_offset)
        server._transaction_check._publish()
        offsets = server.tables.offsets
        return offsets.query(names.TRANS_GROUP, HALF, 0), offsets.query(names.TRANS_GROUP, OP, 0)

    async def decided(self) -> set[int]:
        """The queue offsets that op messages name."""
        return {offset for op in await self.stored(OP) for offset in decided_offsets(op.tags, op.body)}

    async def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        store = self.case.server.store
        while store.dispatch_behind_bytes:
            await asyncio.sleep(0.001)
        return store.get(topic, queue_id, 0, max_msgs=100).messages


def end_header(offset: int, phy_offset: int, state: int, **more: Any) -> EndTransactionRequestHeader:
    fields = {"producer_group": "P", "msg_id": "U", "topic": "T", **more}
    return EndTransactionRequestHeader(
        tran_state_table_offset=offset, commit_log_offset=phy_offset, commit_or_rollback=state, **fields
    )


StartTransactions = Callable[..., Any]


@pytest_asyncio.fixture
async def start(start_broker: StartBroker) -> AsyncIterator[StartTransactions]:
    async def make(**settings: Any) -> Transactions:
        clock = settings.pop("clock", None) or ManualClock(NOW_MS)
        case = await start_broker(clock=clock, **{"transaction_check_interval_ms": NEVER_MS, **settings})
        return Transactions(case, clock)

    yield make


@pytest_asyncio.fixture
async def tx(start: StartTransactions) -> Transactions:
    made = await start()
    await made.connect()
    return made  # type: ignore[no-any-return]


# Half messages and their ends


async def test_prepared_message_is_stored_as_half_message(tx: Transactions) -> None:
    answer = await tx.prepare(properties={"KEYS": "k", "TAGS": "a"}, flag=7)
    (half,) = await tx.stored(HALF)
    assert (answer.queue_id, answer.queue_offset, answer.transaction_id) == (1, 0, "U")
    assert (half.queue_id, half.sys_flag, half.flag, half.body) == (0, 0, 7, b"body")
    assert half.properties == {
        "TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U", "KEYS": "k", "TAGS": "a",
        "REAL_TOPIC": "T", "REAL_QID": "1",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster", "__transactionId__": "U",
    }  # fmt: skip
    assert await tx.stored("T", 1) == []
    assert tx.case.server.tables.transaction_metrics.count("T") == 1


async def test_commit_stores_message_in_its_topic_and_op_message(tx: Transactions) -> None:
    half = await tx.prepare(flag=7)
    assert (await tx.end(half, TRANSACTION_COMMIT)).code == ResponseCode.SUCCESS
    await tx.write_ops()
    (final,), (op,) = await tx.stored("T", 1), await tx.stored(OP)
    (first,) = await tx.stored(HALF)
    assert (final.sys_flag, final.prepared_transaction_offset, final.flag) == (TRANSACTION_COMMIT, first.phy_offset, 7)
    assert (final.born_timestamp_ms, final.born_host) == (first.born_timestamp_ms, first.born_host)
    assert final.properties == {
        name: value for name, value in first.properties.items() if name not in ("REAL_TOPIC", "REAL_QID")
    }
    assert (op.body, op.properties, op.sys_flag) == (b"0,", {"WAIT": "true", "TAGS": "d"}, 0)
    assert tx.case.server.tables.transaction_metrics.count("T") == 0


async def test_committed_message_is_equal_from_memory_and_log(
    tx: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def transact() -> None:
        half = await tx.prepare(properties={"KEYS": "k", "TAGS": "a", "WAIT": "false"}, flag=7, reconsume_times=1)
        assert (await tx.end(half, TRANSACTION_COMMIT)).code == ResponseCode.SUCCESS

    def values(one: StoredMessage) -> list[object]:
        alike = replace(one, phy_offset=0, queue_offset=0, prepared_transaction_offset=0)
        return [alike, list(one.properties.items())]

    assert prepared_properties("TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U", "") is not None
    await transact()
    monkeypatch.setattr(decisions, "MAX_KEPT_BYTES", 0)
    await transact()
    monkeypatch.setattr(send_steps, "prepared_properties", lambda text, marks: None)
    await transact()
    halves, finals = await tx.stored(HALF), await tx.stored("T", 1)
    assert [values(one) for one in halves] == 3 * [values(halves[2])]
    assert [values(one) for one in finals] == 3 * [values(finals[2])]
    assert [one.prepared_transaction_offset for one in finals] == [one.phy_offset for one in halves]
    assert [one.queue_offset for one in finals] == [0, 1, 2]


async def test_rollback_stores_only_op_message(tx: Transactions) -> None:
    halves = [await tx.prepare() for _ in range(3)]
    for half in halves:
        assert (await tx.end(half, TRANSACTION_ROLLBACK)).code == ResponseCode.SUCCESS
    await tx.write_ops()
    (op,) = await tx.stored(OP)
    assert op.body == b"0,1,2,"
    assert await tx.stored("T", 1) == []
    await tx.check()
    assert tx.asked == []


async def test_full_op_message_is_stored(start: StartTransactions) -> None:
    tx = await start(transaction_op_msg_max_size=6, transaction_op_batch_interval_ms=1_000_000)
    for _ in range(8):
        await tx.end(await tx.prepare(), TRANSACTION_ROLLBACK)
    while len(ops := await tx.stored(OP)) < 2:
        await asyncio.sleep(0.001)
    assert [op.body for op in ops] == [b"0,1,2,", b"3,4,5,"]


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"producer_group": "Q"}, ResponseCode.SYSTEM_ERROR, "The producer group wrong"),
        ({"offset": 1}, ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"),
        ({"at": 1}, ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
        ({"at": 1 << 40}, ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
        ({"at": -1}, ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
    ],
)
async def test_decision_without_half_message_is_refused(
    tx: Transactions, change: dict[str, Any], code: int, remark: str
) -> None:
    half = await tx.prepare()
    offset, at = change.pop("offset", 0) + half.queue_offset, int(half.msg_id[-16:], 16)
    given = change.pop("at", None)
    where = at if given is None else given if given < 0 else at + given
    refused = await tx.case.ask(end_header(offset, where, TRANSACTION_COMMIT, **change))
    assert (refused.code, refused.remark) == (code, remark)
    assert await tx.stored("T", 1) == []


async def test_decision_without_message_id_is_executed(tx: Transactions) -> None:
    half = await tx.prepare()
    assert (await tx.end(half, TRANSACTION_COMMIT, msg_id=None)).code == ResponseCode.SUCCESS
    assert [one.body for one in await tx.stored("T", 1)] == [b"body"]


async def test_decision_on_ordinary_message_is_refused(tx: Transactions) -> None:
    plain = await tx.case.send("T", properties={"PGROUP": "P", "REAL_TOPIC": "T", "REAL_QID": "0"})
    refused = await tx.end(plain.read(SendMessageResponseHeader), TRANSACTION_COMMIT)
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


async def test_half_message_of_deleted_topic_is_not_committed(tx: Transactions) -> None:
    half = await tx.prepare()
    tx.case.server.tables.topics.delete("T")
    assert (await tx.end(half, TRANSACTION_COMMIT)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await tx.end(half, TRANSACTION_ROLLBACK)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "3"}])
async def test_half_message_with_delay_is_refused(tx: Transactions, properties: dict[str, str]) -> None:
    refused = await tx.case.send(properties={"TRAN_MSG": "true", "PGROUP": "P", **properties})
    assert (refused.code, refused.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "Transactional messages do not support delayed delivery",
    )


async def test_half_message_with_full_properties_is_refused(tx: Transactions) -> None:
    refused = await tx.case.send(properties={"TRAN_MSG": "true", "PGROUP": "P", "x": "y" * 32_500})
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL


async def test_broker_with_rejected_transactions_refuses_half_message(start: StartTransactions) -> None:
    tx = await start(reject_transaction_message=True)
    refused = await tx.case.send(properties={"TRAN_MSG": "true"})
    assert (refused.code, refused.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending transaction message is forbidden",
    )


# Checks


async def test_answer_to_check_of_open_half_message_commits_it(tx: Transactions) -> None:
    await tx.prepare(properties={"TAGS": "a"}, flag=7)
    await tx.check()
    ((header, message),) = tx.asked
    first, again = await tx.stored(HALF)
    assert (header.topic, header.tran_state_table_offset, header.commit_log_offset) == (HALF, 1, again.phy_offset)
    assert (header.msg_id, header.transaction_id, header.offset_msg_id) == ("U", "U", again.msg_id)
    assert (message.topic, message.queue_id, message.body, message.flag) == ("T", 1, b"body", 7)
    assert again.properties == {**first.properties, "TRANSACTION_CHECK_TIMES": "1"} == message.properties
    assert (again.flag, again.born_timestamp_ms) == (7, first.born_timestamp_ms)
    assert (await tx.answer(TRANSACTION_COMMIT)).code == ResponseCode.SUCCESS
    assert [one.body for one in await tx.stored("T", 1)] == [b"body"]
    await tx.check()
    assert len(tx.asked) == 1


async def test_half_message_younger_than_timeout_is_not_checked(tx: Transactions) -> None:
    await tx.prepare(born_timestamp=NOW_MS)
    await tx.check(6_000)
    assert tx.asked == []
    await tx.check(1)
    assert len(tx.asked) == 1


async def test_decision_after_too_young_half_message_is_kept(tx: Transactions) -> None:
    """The check ends before the young one, so the next check must read the op message again."""
    await tx.prepare(b"young", born_timestamp=NOW_MS)
    await tx.end(await tx.prepare(b"rolled back"), TRANSACTION_ROLLBACK)
    await tx.write_ops()
    await tx.check(6_000)
    assert tx.asked == []
    await tx.check()
    assert [message.body for _, message in tx.asked] == [b"young"]


async def test_half_message_is_checked_when_clock_reaches_timeout(start: StartTransactions) -> None:
    tx = await start(transaction_check_interval_ms=30_000)
    await tx.connect()
    await tx.prepare()
    tx.clock.advance(29_999)
    await asyncio.sleep(0.5)
    assert tx.asked == []
    tx.clock.advance(1)
    while not tx.asked:
        await asyncio.sleep(0.01)


async def test_unanswered_half_message_is_moved_after_max_checks(start: StartTransactions) -> None:
    tx = await start(transaction_check_max=3)
    await tx.connect()
    await tx.prepare()
    for _ in range(5):
        await tx.check()
    assert [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in tx.asked] == ["1", "2", "3"]
    (moved,) = await tx.stored(DISCARDED)
    assert moved.properties["TRANSACTION_CHECK_TIMES"] == "3"
    await tx.write_ops()
    assert await tx.decided() == {0, 1, 2, 3}  # so that a kill moves it once
    assert tx.case.server.tables.transaction_metrics.count("T") == 0
    resumed = await tx.case.ask(ResumeCheckHalfMessageRequestHeader(topic="T", msg_id=moved.msg_id))
    assert resumed.code == ResponseCode.SUCCESS
    await tx.check()
    assert tx.asked[3][1].properties["TRANSACTION_CHECK_TIMES"] == "1"
    await tx.answer(TRANSACTION_COMMIT)
    assert len(await tx.stored("T", 1)) == 1


async def test_half_message_with_max_checks_0_is_checked_once(start: StartTransactions) -> None:
    tx = await start(transaction_check_max=0)
    await tx.connect()
    await tx.prepare(born_timestamp=NOW_MS)
    await tx.check(1_000)
    assert await tx.stored(DISCARDED) == []
    await tx.check()
    await tx.check()
    assert len(tx.asked) == len(await tx.stored(DISCARDED)) == 1


@pytest.mark.parametrize("msg_id", [None, "", "no id", "7F00000100002A9F0000000000000000", "FF" * 16])
async def test_only_discarded_half_message_can_be_resumed(tx: Transactions, msg_id: str | None) -> None:
    await tx.case.send("T")
    refused = await tx.case.ask(ResumeCheckHalfMessageRequestHeader(msg_id=msg_id))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert await tx.stored(HALF) == []


async def test_half_message_older_than_retention_is_moved(tx: Transactions) -> None:
    await tx.prepare()
    await tx.check(72 * 3_600_000 + 1)
    assert tx.asked == []
    assert len(await tx.stored(DISCARDED)) == 1


async def test_decision_in_memory_counts_before_op_message(start: StartTransactions) -> None:
    """RocketMQ checks such a message, and a commit is delivered twice."""
    tx = await start(transaction_op_batch_interval_ms=1_000_000)
    await tx.connect()
    await tx.end(await tx.prepare(), TRANSACTION_COMMIT)
    await tx.end(await tx.prepare(), TRANSACTION_ROLLBACK)
    await tx.check()
    assert tx.asked == []
    assert await tx.stored(OP) == []


async def test_late_decision_on_first_record_decides_requeued_half_message(tx: Transactions) -> None:
    half = await tx.prepare()
    await tx.check()
    await tx.check()
    assert len(tx.asked) == 2
    await tx.end(half, TRANSACTION_COMMIT)
    await tx.check()
    await tx.check()
    assert len(tx.asked) == 2
    assert len(await tx.stored("T", 1)) == 1


async def test_decision_after_decision_by_check_is_refused(tx: Transactions) -> None:
    """RocketMQ would deliver a message that was rolled back."""
    half = await tx.prepare()
    await tx.check()
    await tx.answer(TRANSACTION_ROLLBACK)
    for late in (await tx.end(half, TRANSACTION_COMMIT), await tx.answer(TRANSACTION_COMMIT)):
        assert (late.code, late.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    assert await tx.stored("T", 1) == []


async def test_decided_half_messages_before_open_one_are_read_once(start: StartTransactions) -> None:
    tx = await start(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    await tx.connect()
    halves = [await tx.prepare() for _ in range(40)]
    for half in halves[1:]:
        await tx.end(half, TRANSACTION_ROLLBACK)
    await tx.write_ops()
    await tx.check()
    assert await tx.published() == (40, 1)
    assert len(tx.asked) == 1
    await tx.answer(TRANSACTION_ROLLBACK)
    await tx.write_ops()
    await tx.check()
    assert await tx.published() == (41, 2)
    assert len(tx.asked) == 1


async def test_transaction_offsets_are_saved_after_flush(start: StartTransactions) -> None:
    """Otherwise a power cut takes the final message, and no check looks at its half message again."""
    tx = await start(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    await tx.end(await tx.prepare(), TRANSACTION_COMMIT)
    await tx.check(0)
    assert tx.case.server.store.flushed_offset < tx.case.server.store.max_phy_offset
    assert tx.case.server.tables.offsets.query(names.TRANS_GROUP, HALF, 0) == -1
    assert await tx.published() == (1, 0)


# The producer's own time


async def test_immune_half_message_is_checked_after_its_immunity(
    start: StartTransactions,
) -> None:
    tx = await start(transaction_check_max=2)
    await tx.connect()
    half = await tx.prepare(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "120"})
    later = await tx.prepare()
    for _ in range(4):
        await tx.check()
    assert [message.queue_offset for _, message in tx.asked] == [2, 3]  # the other one, and no check of this
    assert len(await tx.stored(HALF)) == 4
    await tx.check()
    assert len(tx.asked) == 3
    late = await tx.end(half, TRANSACTION_COMMIT)
    assert late.code == ResponseCode.ILLEGAL_OPERATION
    assert (await tx.answer(TRANSACTION_COMMIT)).code == ResponseCode.SUCCESS
    assert later.queue_offset == 1


async def test_immune_half_message_before_many_others_is_stored_again(
    tx: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantrymq.broker.transactions.check._MAX_PASSED", 2)
    half = await tx.prepare(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"})
    for _ in range(3):
        await tx.end(await tx.prepare(), TRANSACTION_ROLLBACK)
    await tx.check()
    again = (await tx.stored(HALF))[-1]
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in again.properties
    await tx.end(half, TRANSACTION_COMMIT)
    await tx.check(4_000_000)
    assert tx.asked == []


async def test_requeued_immune_half_message_stays_open_in_later_checks(
    tx: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantrymq.broker.transactions.check._MAX_PASSED", 2)
    await tx.prepare(b"open", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"})
    for _ in range(4):
        for _ in range(3):
            await tx.end(await tx.prepare(), TRANSACTION_ROLLBACK)
        await tx.check()
        await tx.write_ops()
    await tx.check(4_000_000)
    assert [message.body for _, message in tx.asked] == [b"open"]


async def test_end_of_requeued_immune_half_message_counts_after_restart(
    start: StartTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantrymq.broker.transactions.check._MAX_PASSED", 2)
    tx = await start()
    await tx.connect()
    half = await tx.prepare(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"})
    for _ in range(3):
        await tx.end(await tx.prepare(), TRANSACTION_ROLLBACK)
    await tx.check()
    tx = await again(tx, start)
    assert (await tx.end(half, TRANSACTION_ROLLBACK)).code == ResponseCode.SUCCESS
    await tx.check()
    await tx.check(4_000_000)
    assert tx.asked == []


async def test_late_end_of_requeued_immune_half_message_counts_after_restart(
    start: StartTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the next check comes when the message is no longer immune."""
    monkeypatch.setattr("gantrymq.broker.transactions.check._MAX_PASSED", 2)
    tx = await start()
    await tx.connect()
    half = await tx.prepare(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}, born_timestamp=NOW_MS)
    for _ in range(3):
        await tx.end(await tx.prepare(), TRANSACTION_ROLLBACK)
    await tx.check()
    await tx.write_ops()
    await tx.published()
    tx = await again(tx, start)
    assert (await tx.end(half, TRANSACTION_ROLLBACK)).code == ResponseCode.SUCCESS
    await tx.write_ops()
    await tx.check(4_000_000)
    assert tx.asked == []


# Lives


async def again(tx: Transactions, start: StartTransactions, **settings: Any) -> Transactions:
    """The next life of a broker on the same store."""
    await tx.case.stop()
    fresh: Transactions = await start(clock=tx.clock, **settings)
    await fresh.connect()
    return fresh


async def test_shutdown_stores_op_messages_of_all_decisions(start: StartTransactions) -> None:
    tx = await start(transaction_op_batch_interval_ms=1_000_000, transaction_op_msg_max_size=10)
    for _ in range(9):
        await tx.end(await tx.prepare(), TRANSACTION_COMMIT)
    await tx.prepare(b"open")
    tx = await again(tx, start)
    await tx.check()
    assert [message.body for _, message in tx.asked] == [b"open"]


async def test_checks_continue_after_restart(start: StartTransactions) -> None:
    tx = await start()
    await tx.connect()
    await tx.prepare(b"one")
    await tx.check()
    tx = await again(tx, start)
    await tx.check()
    assert [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in tx.asked] == ["2"]
    await tx.answer(TRANSACTION_COMMIT)
    assert [one.body for one in await tx.stored("T", 1)] == [b"one"]


async def test_ops_of_4_9_8_are_read(tx: Transactions) -> None:
    """Each names one offset, without a comma."""
    from gantrymq.broker.transactions.half_messages import op_message
    from gantrymq.model.message import LOOPBACK

    for _ in range(3):
        await tx.prepare()
    store = tx.case.server.store
    for body in (b"0", b"2", b"x,-5,,99999999999999999999,7", b"junk"):
        store.put(op_message(0, body, NOW_MS, LOOPBACK))
    await tx.check()
    assert [header.tran_state_table_offset for header, _ in tx.asked] == [3]


async def test_transaction_metrics_file_equals_that_of_java(start: StartTransactions, tmp_path: Path) -> None:
    tx = await start()
    await tx.prepare()
    await tx.case.stop()
    file = tmp_path / "store" / "config" / "transactionMetrics"
    kept = json.loads(file.read_text())
    assert kept["transactionCount"] == {"T": {"count": 1, "timeStamp": NOW_MS}}
    assert set(kept["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    tx = await start(clock=tx.clock)
    assert tx.case.server.tables.transaction_metrics.count("T") == 1
    await tx.case.stop()
    file.write_text(file.read_text()[:20])  # as a kill leaves the real broker's
    tx = await start(clock=tx.clock)
    await tx.prepare()
    assert tx.case.server.tables.transaction_metrics.count("T") == 1


async def test_decision_with_unknown_state_changes_nothing(tx: Transactions) -> None:
    half = await tx.prepare()
    request = RemotingCommand.request(end_header(half.queue_offset, int(half.msg_id[-16:], 16), TRANSACTION_NONE), b"")
    with pytest.raises(RemotingTimeoutError):
        await tx.case.client.invoke(tx.case.server.address, request, 100)
    assert await tx.stored("T", 1) == []
