"""A slave that is promoted: its role, what it owes, and the masters that must not be beside it."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq.errors import RemotingError
from gantrymq.ha.copy import CopyState
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from gantrymq.remoting.bodies.broker import HARuntimeInfo
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import NotifyBrokerRoleChangedRequestHeader
from gantrymq.remoting.headers.pop import PopMessageRequestHeader
from gantrymq.remoting.headers.send import EndTransactionRequestHeader, SendMessageResponseHeader

pytestmark = pytest.mark.asyncio

SMALL = {"mapped_file_size_commit_log": 1 << 16, "timer_precision_ms": 100, "timer_flush_interval_ms": 100}
RETRY = "%RETRY%G_T"
QUEUES = (("T", 0), ("T", 1), ("Other", 0))
SLAVE = {**SMALL, "broker_role": "SLAVE", "broker_id": 1}


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def in_sync(slave: BrokerCase, master: BrokerCase) -> None:
    role = slave.server.replication.slave
    assert role is not None
    await until(lambda: slave.server.store.max_phy_offset == master.server.store.max_phy_offset)
    await until(lambda: role.view.state is CopyState.IN_SYNC and role.is_table_fresh)


async def promoted(slave: BrokerCase) -> str | None:
    """Promote it, and wait until it is the master. Returns the remark of a refusal."""
    header = NotifyBrokerRoleChangedRequestHeader(master_address=slave.server.address, master_broker_id=1)
    answer = await slave.ask(header)
    if answer.code != ResponseCode.SUCCESS:
        return answer.remark
    await until(lambda: not slave.server.config.is_slave and slave.server._reopening is None)
    return None


def bodies(case: BrokerCase, topic: str = "T") -> Counter[bytes]:
    found = case.server.store.get(topic, 0, 0, max_msgs=1000, max_bytes=1 << 20).messages
    return Counter(bytes(message.body) for message in found)


async def test_slave_is_promoted_in_place_and_stays_master(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    for number in range(5):
        await master.send(body=b"%d" % number)
    master.server.tables.groups.find("G")
    master.server.tables.offsets.commit("G", "T", 0, 3)
    await in_sync(slave, master)
    await until(lambda: slave.server.tables.offsets.query("G", "T", 0) == 3)
    assert "is connected, so it is alive" in str(await promoted(slave))
    fields = {"masterAddress": slave.server.address, "masterBrokerId": "1", "force": "true"}
    forced = RemotingCommand(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext_fields=fields)
    answer = await slave.client.invoke(slave.server.address, forced, 5_000)
    assert "knows another master of broker-a" in str(answer.remark)
    await master.stop()
    await until(lambda: slave.server.replication.slave.view.state is not CopyState.IN_SYNC)  # type: ignore[union-attr]
    address = slave.server.address
    copy = slave.server.replication.slave.view  # type: ignore[union-attr]
    assert copy.master_max_offset == copy.max_offset > 0
    assert copy.record_bytes > 0
    assert await promoted(slave) is None
    sent = await slave.send(body=b"new")
    assert sent.read(SendMessageResponseHeader).queue_offset == 5
    assert (slave.server.address, slave.server.tables.offsets.query("G", "T", 0)) == (address, 3)
    info = decode_body(HARuntimeInfo, (await slave.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
    assert info.master
    assert (await slave.server.outer.members()) == {0: address}
    await slave.stop()
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    assert (slave.server.config.is_slave, slave.server.config.broker.broker_id) == (False, 0)
    with pytest.raises(RemotingError, match="another master of broker-a"):
        await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    back = await start_broker(tmp_path / "master", **SLAVE, namesrv_addr=namesrv)
    await in_sync(back, slave)
    await slave.stop()
    slave = await start_broker(tmp_path / "slave", **SMALL, namesrv_addr=namesrv)  # the configuration says it now
    await slave.stop()
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    assert slave.server.config.is_slave


async def test_master_that_comes_later_than_another_one_is_not_registered(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    alone = await start_broker(tmp_path / "alone", **SMALL)  # its name server is known to it later
    other = await start_broker(tmp_path / "other", **SMALL, namesrv_addr=namesrv)
    config = alone.server.config
    config.broker = replace(config.broker, namesrv_addr=namesrv)
    assert await alone.server.outer.register() == 0
    assert await other.server.outer.members() == {0: other.server.address}
    await other.server.abandon()
    await until_registered(alone)


async def until_registered(case: BrokerCase) -> None:
    while await case.server.outer.register() == 0:
        await asyncio.sleep(0.05)


async def test_transactions_that_former_master_has_ended_are_not_committed_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    slow: dict[str, Any] = {**SMALL, "transaction_op_batch_interval_ms": 3_600_000}
    master = await start_broker(tmp_path / "master", **slow)
    prepared = {"TRAN_MSG": "true", "PGROUP": "P"}
    halves = []
    for name in ("committed", "open"):
        sent = await master.send(
            body=name.encode(),
            sys_flag=TRANSACTION_PREPARED,
            properties={**prepared, "UNIQ_KEY": name},
            born_timestamp=int(time.time() * 1000),
        )
        halves.append((name, sent.read(SendMessageResponseHeader)))
    name, half = halves[0]
    end = EndTransactionRequestHeader(
        producer_group="P",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=int(str(half.msg_id)[16:], 16),
        commit_or_rollback=TRANSACTION_COMMIT,
        from_transaction_check=False,
        msg_id=name,
        transaction_id=name,
    )
    assert (await master.ask(end)).code == ResponseCode.SUCCESS
    await master.dispatched(1)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "master", copy)  # no op message is in the log yet
    (copy / "config" / "role.json").write_text(json.dumps({"copied": True}))
    (copy / "abort").unlink()
    fast = {
        **SMALL,
        "transaction_check_interval_ms": 200,
        "transaction_timeout_ms": 0,
        "transaction_op_batch_interval_ms": 100,
    }
    again = await start_broker(copy, **fast)
    asked: list[str] = []
    check = again.server._transaction_check
    check._ask = lambda half: asked.append(half.properties["UNIQ_KEY"])  # type: ignore[method-assign]
    await until(lambda: len(asked) >= 2)
    assert set(asked) == {"open"}
    assert bodies(again) == {b"committed": 1}


async def test_empty_queue_that_slave_lacks_goes_on_at_its_groups_offset(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    case = await start_broker(tmp_path / "store", **SMALL)
    for _ in range(100):
        await case.send()
    for number, offset in enumerate((100, 80)):
        case.server.tables.offsets.commit("G", "T", number, offset)
    case.server.tables.offsets.commit("G", "Other", 0, 90)
    await case.stop()
    (tmp_path / "store" / "config" / "role.json").write_text(json.dumps({"copied": True}))
    case = await start_broker(tmp_path / "store", **SMALL)  # the messages of the other queues have expired long ago
    sent = await case.send(queue_id=1)
    assert sent.read(SendMessageResponseHeader).queue_offset == 80
    await case.dispatched(81, queue_id=1)
    await case.stop()
    case = await start_broker(tmp_path / "store", **SMALL)
    assert [case.server.tables.offsets.query("G", topic, number) for topic, number in QUEUES] == [100, 80, 90]
    assert len(case.server.store.get("T", 1, 80).messages) == 1
    for topic, number, offset in (("T", 1, 81), ("Other", 0, 90)):
        sent = await case.send(topic, queue_id=number)
        assert sent.read(SendMessageResponseHeader).queue_offset == offset
    await case.dispatched(91, "Other")


async def test_messages_that_former_master_has_revived_are_not_revived_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    case = await start_broker(tmp_path / "store", **SMALL)
    case.server.tables.groups.find("G")
    for body in (b"one", b"two"):
        await case.send(body=body)
    await case.dispatched(2)
    pop = PopMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, max_msg_nums=2, invisible_time=4_000, poll_time=0,
        born_time=int(time.time() * 1000), init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip
    assert (await case.ask(pop)).code == ResponseCode.SUCCESS
    await case.server.tables.persistence.save_all()
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "store" / "config", before)
    await case.dispatched(2, RETRY)
    await case.stop()
    for name in ("config", "timerlog"):
        shutil.rmtree(tmp_path / "store" / name)
    (tmp_path / "store" / "timerwheel").unlink()
    shutil.copytree(before, tmp_path / "store" / "config")
    (tmp_path / "store" / "config" / "role.json").write_text(json.dumps({"copied": True}))
    case = await start_broker(tmp_path / "store", **SMALL)
    assert case.server.tables.offsets.query("G", "T", 0) == 2
    revived = ["rmq_sys_REVIVE_LOG_DefaultCluster", "CID_RMQ_SYS_REVIVE_GROUP"]
    await until(lambda: sum(progress.behind_messages for progress in case.server.pop.revive.progress()) == 0)
    await until(lambda: any(case.server.tables.offsets.query(revived[1], revived[0], n) >= 0 for n in range(8)))
    assert bodies(case, RETRY) == {b"one": 1, b"two": 1}
