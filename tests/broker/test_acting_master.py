"""A slave that acts while its master is away: reads, offsets and locks go on, sends do not, and what is owed waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq import StoreReader
from gantrymq.ha.copy import CopyState
from gantrymq.remoting.bodies.client import LockBatchRequestBody
from gantrymq.remoting.bodies.route import TopicRouteData
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.tools.pending.pending import PendingMessages
from gantrymq.tools.pending.waiting import PendingKind

pytestmark = pytest.mark.asyncio

SMALL = {"mapped_file_size_commit_log": 1 << 16, "enable_slave_acting_master": True}
SLAVE = {**SMALL, "broker_role": "SLAVE", "broker_id": 1}


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def route_of(case: BrokerCase, namesrv: str) -> tuple[dict[int, str], int]:
    request = RemotingCommand.request(GetRouteInfoRequestHeader(topic="T"))
    answer = await case.client.invoke(namesrv, request, 5_000)
    route = decode_body(TopicRouteData, answer.body)
    return route.broker_datas[0].broker_addrs, route.queue_datas[0].perm


async def test_slave_acts_for_master_until_it_is_back(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv(support_acting_master=True)).address
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    role, address = slave.server.replication.slave, slave.server.address
    assert role is not None
    for _ in range(5):
        await master.send()
    await master.send(properties={"DELAY": "5"})
    await master.send(properties={"TIMER_DELAY_MS": "3600000"})
    master.server.tables.offsets.commit("G", "T", 0, 2)
    await until(lambda: role.view.state is CopyState.IN_SYNC and role.is_table_fresh)
    await until(lambda: slave.server.tables.offsets.query("G", "T", 0) == 2)
    await slave.dispatched(5)
    assert (await slave.pull()).code == ResponseCode.SYSTEM_BUSY  # slaveReadEnable is off, and the master is there
    await master.stop()
    await until(lambda: role.is_alone)
    while (await route_of(slave, namesrv)) != ({0: address}, 4):
        await asyncio.sleep(0.01)
    refused = await slave.send()
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "messages are put to the slave" in str(refused.remark)
    assert (await slave.pull()).code == ResponseCode.SUCCESS
    slave.server.tables.offsets.commit("G", "T", 0, 4)
    body = LockBatchRequestBody(consumer_group="G", client_id="c1", mq_set=[])
    assert (await slave.ask(RequestCode.LOCK_BATCH_MQ, body)).code == ResponseCode.SUCCESS
    with StoreReader.open(tmp_path / "slave") as reader:
        waiting = [message.kind for message in PendingMessages(reader, int(time.time() * 1000))]
    assert waiting == [PendingKind.DELAY, PendingKind.TIMER]
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    assert master.server.tables.offsets.query("G", "T", 0) == 4
    await until(lambda: role.view.state is CopyState.IN_SYNC)
    assert (await route_of(slave, namesrv))[0][0] == master.server.address
    assert (await slave.pull()).code == ResponseCode.SYSTEM_BUSY
