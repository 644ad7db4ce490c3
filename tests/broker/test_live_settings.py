"""Settings that are changed while the broker runs: what is shown is what it goes by, and what cannot be is refused."""

from __future__ import annotations

import asyncio
import re

import pytest
from broker_cases import BrokerCase, StartBroker

from gantrymq.clock import ShiftedClock
from gantrymq.config.known_keys import AUTH_KEYS
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand

pytestmark = pytest.mark.asyncio
HOUR_MS = 3_600_000


async def set_to(broker: BrokerCase, **entries: object) -> RemotingCommand:
    body = "".join(f"{name}={value}\n" for name, value in entries.items())
    return await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body.encode())


async def shown(broker: BrokerCase) -> list[str]:
    return (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode().splitlines()


async def test_shorter_reserved_time_removes_old_files(start_broker: StartBroker) -> None:
    clock = ShiftedClock()
    case = await start_broker(
        clock=clock,
        mapped_file_size_commit_log=1 << 16,
        clean_resource_interval_ms=10,
        delete_when=";".join(map(str, range(24))),
    )
    for _ in range(9):
        await case.send(body=bytes(20_000))
    clock.advance(3 * HOUR_MS)
    assert (await set_to(case, fileReservedTime=1, deleteCommitLogFilesInterval=1)).code == ResponseCode.SUCCESS
    assert "fileReservedTime=1" in await shown(case)
    async with asyncio.timeout(60):
        while case.server.store.min_phy_offset < 2 << 16:
            await asyncio.sleep(0.001)


async def test_shorter_flush_interval_takes_effect_at_once(start_broker: StartBroker) -> None:
    case = await start_broker(
        flush_interval_commit_log_ms=HOUR_MS,
        flush_commit_log_thorough_interval_ms=HOUR_MS,
        flush_delay_offset_interval_ms=HOUR_MS,
    )
    await case.send()
    store = case.server.store
    assert store.flushed_offset < store.max_phy_offset
    await set_to(case, flushIntervalCommitLog=1, flushCommitLogThoroughInterval=0)
    async with asyncio.timeout(60):
        while store.flushed_offset < store.max_phy_offset:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "entry",
    [
        ("flushDiskType", "SYNC_FLUSH"),
        ("mappedFileSizeCommitLog", "65536"),
        ("transientStorePoolEnable", "true"),
        ("messageDelayLevel", "1s"),
        ("recoverRule", "4.x"),
        ("listenPort", "10911"),
        ("brokerIP1", "10.1.2.3"),
        ("brokerName", "other"),
        ("brokerIP2", "10.1.2.3"),
        ("haListenPort", "1"),
        ("storePathRootDir", "/elsewhere"),
        ("storePathCommitLog", "/elsewhere"),
        ("storePathIndex", "/elsewhere"),
        ("readOnlyCommitLogStorePaths", "/elsewhere"),
        ("brokerRole", "SLAVE"),
        ("storeType", "defaultRocksDB"),
        ("haMasterAddress", "10.1.2.3:10912"),
        ("tls.server.keyPath", "/theirs"),
    ],
)
async def test_change_of_start_only_key_is_refused(broker: BrokerCase, entry: tuple[str, str]) -> None:
    before = await shown(broker)
    refused = await set_to(broker, defaultTopicQueueNums=3, **dict([entry]))
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert re.search("only a start (reads|can accept) it|the value at the start", str(refused.remark))
    assert entry[0] in str(refused.remark)
    assert await shown(broker) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("regionId", "a\\u0001b"),
        ("regionId", "a\\u0002b"),
        ("regionId", "a\\nbrokerPermission=0"),
        ("regionId", "\\ud800"),
        ("regionId", "r" * 40_000),
        ("regionId", ""),
        ("namesrvAddr", "10.1.2.3:9876;" * 4_000),
        ("deleteWhen", "04;" * 20_000),
        ("adminBrokerThreadPoolNums", "7" * 40_000),
        ("defaultTopicQueueNums", "65537"),
    ],
)
async def test_setting_with_forbidden_character_is_refused(broker: BrokerCase, key: str, value: str) -> None:
    before = await shown(broker)
    refused = await set_to(broker, brokerPermission=2, **{key: value})
    assert (refused.code, key in str(refused.remark)) == (ResponseCode.INVALID_PARAMETER, True)
    assert len(str(refused.remark)) < 10_000
    assert await shown(broker) == before
    assert (await broker.send()).code == ResponseCode.SUCCESS


async def test_config_update_with_displayed_settings_is_accepted(broker: BrokerCase) -> None:
    before = await shown(broker)
    listed = {"configBlackList", "aclEnable", "aclPlainFile"} | AUTH_KEYS
    same = dict(line.split("=", 1) for line in before if line.partition("=")[0] not in listed)
    answer = await set_to(broker, **same)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert await shown(broker) == before
