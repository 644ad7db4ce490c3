"""A broker as slave: the copy of its master's log, the tables that follow, and its start as a master."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq.errors import ConfigError
from gantrymq.ha.copy import CopyState
from gantrymq.ha.slave import SlaveCopyView
from gantrymq.model.message import Message
from gantrymq.remoting.bodies.broker import HARuntimeInfo
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.headers.pull import PullMessageResponseHeader
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader

pytestmark = pytest.mark.asyncio

FILE = 1 << 16
SMALL = {"mapped_file_size_commit_log": FILE}
SIZES = ("--set", "maxHashSlotNum=1000", "--set", "maxIndexNum=4000")
SLAVE = {**SMALL, "broker_role": "SLAVE", "broker_id": 1}


class Run:
    """``gantrymq`` as a process: its exit code, and the lines of its JSON."""

    def __init__(self, *words: str) -> None:
        words = (sys.executable, "-m", "gantrymq", *words)
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        self.code, self.error = done.returncode, done.stderr
        self.lines = [json.loads(line) for line in done.stdout.splitlines()] if "--json" in words else []


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def view(case: BrokerCase) -> SlaveCopyView:
    slave = case.server.replication.slave
    assert slave is not None
    return slave.view


def log_of(store: Path, end: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))[:end]


async def fill(case: BrokerCase, messages: int, **of: Any) -> int:
    for number in range(messages):
        sent = await case.send(body=bytes([number % 256]) * 3_000, **of)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
    return case.server.store.max_phy_offset


async def in_sync(slave: BrokerCase, master: BrokerCase) -> None:
    await until(lambda: slave.server.store.max_phy_offset == master.server.store.max_phy_offset)
    await until(lambda: view(slave).state is CopyState.IN_SYNC)


async def test_slave_copies_master_and_goes_on_as_master(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    assert slave.server.replication.slave is not None
    await until(lambda: view(slave).state is CopyState.NO_MASTER)
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    end = await fill(master, 60)
    await in_sync(slave, master)
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)
    await slave.dispatched(60)
    shown = decode_body(HARuntimeInfo, (await slave.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
    assert (shown.master, shown.ha_client_runtime_info.state) == (False, "in sync")
    assert shown.ha_client_runtime_info.max_offset == end
    await until(lambda: slave.server.replication.slave.is_table_fresh)  # type: ignore[union-attr]
    assert "T" in slave.server.tables.topics.table
    await until(lambda: [one.acked_offset for one in master.server.replication.slaves] == [end])
    await slave.stop()
    await master.stop()
    again = await start_broker(tmp_path / "slave", **SMALL)
    sent = await again.send(body=b"new")
    assert sent.read(SendMessageResponseHeader).queue_offset == 60


async def test_id_of_a_master_is_refused_at_a_slave(start_broker: StartBroker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerId"):
        await start_broker(tmp_path / "slave", **{**SLAVE, "broker_id": 0})


async def test_requests_at_slave_are_answered_as_rocketmqs_slave_answers(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    await fill(master, 3)
    await in_sync(slave, master)
    await slave.dispatched(3)
    tables = slave.server.replication.slave
    assert tables is not None
    await until(lambda: "T" in slave.server.tables.topics.table)
    assert (await slave.send()).code == ResponseCode.SYSTEM_BUSY
    assert (await slave.pull()).code == ResponseCode.SYSTEM_BUSY
    refused = await slave.ask(CreateTopicRequestHeader(topic="New", default_topic="TBW102", read_queue_nums=1,
        write_queue_nums=1, perm=6, topic_filter_type="SINGLE_TAG"))  # fmt: skip
    assert (refused.code, master.server.address in str(refused.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert not slave.server.store.is_writable
    live = slave.server.config
    live.broker = replace(live.broker, slave_read_enable=True)
    found = await slave.pull(offset=2)
    assert (found.code, found.read(PullMessageResponseHeader).suggest_which_broker_id) == (ResponseCode.SUCCESS, 0)
    assert (await slave.pull(offset=3)).code == ResponseCode.PULL_NOT_FOUND
    for offset in (4, 100, -3):
        beyond = await slave.pull(offset=offset)
        assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert beyond.read(PullMessageResponseHeader).next_begin_offset == offset
    live.store = replace(live.store, offset_check_in_slave=True)
    assert (await slave.pull(offset=100)).code == ResponseCode.PULL_OFFSET_MOVED
    of_master = master.server.config
    of_master.broker = replace(of_master.broker, slave_read_enable=True)
    master.server.store.reconfigure(replace(master.server.store.config, access_message_in_memory_max_ratio=0))
    far = await master.pull(offset=0, max_msg_nums=1)
    assert far.read(PullMessageResponseHeader).suggest_which_broker_id == 1


async def test_tables_and_deletions_follow_master(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    await fill(master, 5)
    await fill(master, 5, topic="Gone")
    of_master, of_slave = master.server.tables, slave.server.tables
    of_master.groups.find("G")
    of_master.offsets.commit("G", "T", 0, 4)
    await in_sync(slave, master)
    await until(lambda: {"T", "Gone"} <= of_slave.topics.table.keys() and "G" in of_slave.groups.table)
    await until(lambda: of_slave.offsets.query("G", "T", 0) == 4)
    of_slave.offsets.commit("G", "T", 0, 5)  # of a consumer that reads from the slave
    of_master.groups.delete("G")
    assert (await master.ask(DeleteTopicRequestHeader(topic="Gone"))).code == ResponseCode.SUCCESS
    queue = tmp_path / "slave" / "consumequeue" / "Gone"
    await until(lambda: not queue.exists() and "Gone" not in of_slave.topics.table and "G" not in of_slave.groups.table)
    assert of_slave.offsets.query("G", "T", 0) == 5
    assert of_slave.topics.version == of_master.topics.version
    of_master.offsets.commit("G", "T", 0, 1)  # a reset
    await until(lambda: of_slave.offsets.query("G", "T", 0) == 1)


@pytest.mark.parametrize("truncate", ["auto", "command"])
async def test_messages_that_master_lost_are_cut_and_kept(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path, truncate: str
) -> None:
    namesrv = (await start_namesrv()).address
    master = await start_broker(tmp_path / "master", **SMALL, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv, ha_truncate=truncate)
    await fill(master, 10)
    await in_sync(slave, master)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "master", before)
    await fill(master, 30)
    await in_sync(slave, master)
    end = slave.server.store.max_phy_offset
    await master.stop()
    master = await start_broker(before, **SMALL, namesrv_addr=namesrv)  # as after a power cut
    cut = master.server.store.max_phy_offset
    await fill(master, 5, topic="Other")
    if truncate == "command":
        note = tmp_path / "slave" / "config" / "divergence.json"
        await until(note.exists)
        await until(lambda: view(slave).state in (CopyState.AHEAD, CopyState.DIVERGED))  # set after the note
        await slave.stop()
        shown = Run("store", "diverged", str(tmp_path / "slave"), "--json")
        assert [line["kind"] for line in shown.lines].count("message") == 30
        assert shown.lines[-1]["cutOffset"] == cut
        assert Run("store", "diverged", str(tmp_path / "slave"), "--cut").code == 0
        slave = await start_broker(tmp_path / "slave", **SLAVE, namesrv_addr=namesrv)
    await until(lambda: not slave.server._stopping and slave.server.store.max_phy_offset < end)
    await in_sync(slave, master)
    await slave.dispatched(5, "Other")
    assert slave.server.store.max_offset_in_queue("T", 0) == 10
    await slave.stop()
    last = master.server.store.max_phy_offset
    assert log_of(tmp_path / "slave", last) == log_of(before, last)
    assert Run("store", "verify", str(tmp_path / "slave")).code == 0
    (kept,) = (tmp_path / "slave" / "diverged").iterdir()
    Run("store", "salvage", str(kept), str(tmp_path / "salvaged"), *SIZES)
    salvaged = Run("store", "log", str(tmp_path / "salvaged"), "--json")
    offsets = [line["phyOffset"] for line in salvaged.lines if line.get("topic") == "T"]
    assert (offsets[0], len(offsets)) == (cut, 30)


async def test_what_master_has_delivered_is_not_delivered_again_by_the_slave_as_master(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    namesrv = (await start_namesrv()).address
    fast = {"flush_delay_offset_interval_ms": 100, "timer_precision_ms": 100, "timer_flush_interval_ms": 100}
    master = await start_broker(tmp_path / "master", **SMALL, **fast, namesrv_addr=namesrv)
    slave = await start_broker(tmp_path / "slave", **SLAVE, **fast, namesrv_addr=namesrv)
    for properties in ({"DELAY": "1"}, {"TIMER_DELAY_MS": "500"}):
        assert (await master.send(properties=properties)).code == ResponseCode.SUCCESS
    await master.dispatched(2)
    late = {"TIMER_DELAY_MS": "60000"}
    assert (await master.send(properties=late)).code == ResponseCode.SUCCESS
    timers, copied = master.server.store.timers, slave.server.store.copied_progress
    assert timers is not None
    assert copied is not None
    await until(lambda: slave.server.store.delay_offsets.get(1) == 1)
    await until(lambda: copied.timer_checkpoint.master_timer_queue_offset == 2)
    await in_sync(slave, master)
    assert slave.server.store.timers is None
    await slave.stop()
    await master.stop()
    again = await start_broker(tmp_path / "slave", **SMALL, **fast)
    timers = again.server.store.timers
    assert timers is not None
    await until(lambda: timers.congestion == 1)  # the late one
    assert again.server.store.max_offset_in_queue("T", 0) == 2


async def test_slave_copies_from_given_address_without_name_server(start_broker: StartBroker, tmp_path: Path) -> None:
    master = await start_broker(tmp_path / "master", **SMALL)
    end = await fill(master, 30)
    address = master.server.replication.address
    slave = await start_broker(tmp_path / "slave", **SLAVE, ha_master_address=address)
    await until(lambda: slave.server.store.max_phy_offset == end)
    await slave.stop()
    end = await fill(master, 3)
    slave = await start_broker(tmp_path / "slave", **SLAVE, ha_master_address=address)
    await until(lambda: slave.server.store.max_phy_offset == end)
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


async def test_slave_with_access_control_asks_as_administrator(
    start_namesrv: StartNamesrv, start_broker: StartBroker, tmp_path: Path
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n  - accessKey: adminKey\n    secretKey: adminSecret\n    admin: true\n")
    namesrv = (await start_namesrv()).address
    acl = {"acl_enable": True, "acl_plain_file": str(file), "namesrv_addr": namesrv}
    master = await start_broker(tmp_path / "master", **SMALL, **acl)
    slave = await start_broker(tmp_path / "slave", **SLAVE, **acl)
    master.server.store.put(Message("T", b"body"))
    master.server.tables.groups.find("G")
    await in_sync(slave, master)
    await until(lambda: "G" in slave.server.tables.groups.table)
