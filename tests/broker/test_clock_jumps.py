"""The wall clock jumps while servers run: no client counts as silent, and no lock or wait changes its length."""

from __future__ import annotations

import asyncio

import pytest
from broker_cases import StartBroker, StartNamesrv

from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from gantrymq.remoting.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from gantrymq.remoting.transport.client import RemotingClient
from jumping_clock import DAY_MS, JUMPS, JumpingClock

pytestmark = pytest.mark.asyncio


@JUMPS
async def test_clock_jump_does_not_expire_brokers_at_name_server(start_namesrv: StartNamesrv, jump_ms: int) -> None:
    clock, client = JumpingClock(), RemotingClient()
    namesrv = await start_namesrv(clock=clock)
    header = RegisterBrokerRequestHeader(
        broker_name="a", broker_addr="10.0.0.1:1", cluster_name="C", broker_id=0, ha_server_addr="10.0.0.1:0"
    )
    topics = {name: TopicConfig(topic_name=name) for name in ("T", "U")}
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(topic_config_table=topics)
    )

    async def ask(header: object, body: bytes = b"") -> RemotingCommand:
        return await client.invoke(namesrv.address, RemotingCommand.request(header, body), 60_000)  # type: ignore[arg-type]

    try:
        assert (await ask(header, body.encode())).code == ResponseCode.SUCCESS
        clock.jump(jump_ms)
        namesrv.scan_not_active_broker()
        assert (await ask(GetRouteInfoRequestHeader(topic="T"))).code == ResponseCode.SUCCESS
        clock.wait(120_001)
        assert len(namesrv.routes.expired()) == 1
    finally:
        await client.close()


@JUMPS
async def test_clock_jump_does_not_change_expiry_of_clients_and_locks(start_broker: StartBroker, jump_ms: int) -> None:
    clock = JumpingClock()
    broker = await start_broker(clock=clock)
    await broker.send()
    await broker.heart_beat()
    await broker.pull(consumer_group="without_heart_beats")
    queues = [MessageQueue("T", "broker-a", 0)]

    async def lock(client_id: str) -> list[MessageQueue]:
        body = LockBatchRequestBody(consumer_group="G", client_id=client_id, mq_set=queues)
        return decode_body(
            LockBatchResponseBody, (await broker.ask(RequestCode.LOCK_BATCH_MQ, body)).body
        ).lock_ok_mq_set

    assert await lock("one") == queues
    clock.jump(jump_ms)
    broker.server._periodic.expire_clients()
    assert await lock("another") == []
    assert broker.server.sessions.consumers.group("G") is not None
    assert broker.server.sessions.consumers.find_subscription("without_heart_beats", "T") is not None
    assert "P" in broker.server.sessions.producers.groups
    clock.wait(60_001)
    broker.server._periodic.expire_clients()
    assert await lock("another") == queues
    clock.wait(60_000)
    broker.server.sessions.producers.expire(int(clock.monotonic_s() * 1000))
    assert "P" not in broker.server.sessions.producers.groups
    clock.wait(600_000)
    broker.server._periodic.expire_clients()
    assert broker.server.sessions.consumers.find_subscription("without_heart_beats", "T") is None


@JUMPS
async def test_clock_jump_does_not_change_wait_of_held_pull(start_broker: StartBroker, jump_ms: int) -> None:
    clock = JumpingClock()
    broker = await start_broker(clock=clock)
    await broker.send()
    await broker.dispatched(1)
    flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)
    pull = asyncio.ensure_future(broker.pull(offset=1, sys_flag=flags, suspend_timeout_millis=20_000))
    while not len(broker.server.sessions.holds):
        await asyncio.sleep(0.001)
    clock.jump(jump_ms)
    broker.server.sessions.holds.expire()
    assert len(broker.server.sessions.holds) == 1
    clock.wait(20_000)
    broker.server.sessions.holds.expire()
    assert (await pull).code == ResponseCode.PULL_NOT_FOUND


async def test_clock_set_back_does_not_stop_retention_and_saving_of_offsets(
    start_broker: StartBroker,
) -> None:
    clock = JumpingClock()
    broker = await start_broker(clock=clock, clean_resource_interval_ms=10_000)
    cleaner = broker.server.store._log_cleaner
    assert cleaner is not None
    cleaner.step(clock.now_ms())
    begun = cleaner._next_run_ms
    clock.jump(-2 * DAY_MS)
    cleaner.step(clock.now_ms())
    assert cleaner._next_run_ms < begun
