"""A broker as master: what its slaves get, which of them count, and what puts that wait for them answer."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import ConfigError, RemotingError
from gantrymq.ha.server import MAX_CONNECTIONS
from gantrymq.ha.slave_connection import SlaveConnection
from gantrymq.ha.slave_state import SlaveState
from gantrymq.remoting.bodies.broker import HARuntimeInfo
from gantrymq.remoting.bodies.topic import RegisterBrokerBody
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import ExchangeHAInfoResponseHeader
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader
from ha_cases import TestSlave

pytestmark = pytest.mark.asyncio

FILE = 1 << 16
SMALL = {"mapped_file_size_commit_log": FILE}
SYNC = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout_ms": 300}
ALLOWED = {**SYNC, "slave_timeout_ms": 20_000, "ha_allowed_slaves": "127.0.0.0/8"}


def address(case: BrokerCase) -> str:
    return case.server.replication.address


def log_of(case: BrokerCase) -> bytes:
    """The bytes of all files up to the end of the log."""
    files = sorted((case.server.store.path / "commitlog").iterdir())
    begin, end = case.server.store.min_phy_offset, case.server.store.max_phy_offset
    return b"".join(file.read_bytes() for file in files if int(file.name) >= begin)[: end - begin]


async def fill(case: BrokerCase, messages: int = 40, size: int = 5_000) -> int:
    for number in range(messages):
        assert (await case.send(body=bytes([number]) * size)).code == ResponseCode.SUCCESS
    return case.server.store.max_phy_offset


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def status(case: BrokerCase) -> HARuntimeInfo:
    return decode_body(HARuntimeInfo, (await case.ask(RequestCode.GET_BROKER_HA_STATUS)).body)


def closed_states(case: BrokerCase) -> list[SlaveState]:
    return [slave.state for slave in case.server.replication.closed_slaves]


# What is sent


async def test_slave_without_log_gets_all_files_with_their_blank_tails(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL)
    end = await fill(case)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        await slave.copy_to(end)
        assert slave.begin == 0
        assert slave.log == log_of(case)
        assert len(log_of(case)) > 3 * FILE
        ends = [sum(slave.sizes[: number + 1]) for number in range(len(slave.sizes))]
        assert max(slave.sizes) == 32_768
        assert {FILE, 2 * FILE, 3 * FILE} <= set(ends)  # no frame crosses a file
        await case.send(body=b"later")
        await slave.copy_to(case.server.store.max_phy_offset)
        assert slave.log == log_of(case)


async def test_slave_with_log_gets_the_rest_from_the_middle_of_a_record(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, ha_transfer_batch_size_bytes=1_000)
    end = await fill(case)
    async with TestSlave(address(case)) as slave:
        slave.report(FILE + 777)
        await slave.copy_to(end)
        assert slave.begin == FILE + 777
        assert slave.log == log_of(case)[FILE + 777 :]
        assert max(slave.sizes) == 1_000


async def test_slave_without_log_gets_last_file_alone_as_from_java_if_asked(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, ha_last_file_only=True)
    end = await fill(case)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        await slave.copy_to(end)
        assert slave.begin == end - end % FILE


async def test_idle_slave_gets_heartbeats_with_the_next_offset(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, ha_send_heartbeat_interval_ms=100)
    end = await fill(case, 1)
    async with TestSlave(address(case)) as slave:
        slave.report(end)
        began = time.monotonic()
        assert [await slave.frame() for _ in range(2)] == [(end, b"")] * 2
        assert time.monotonic() - began >= 0.2


async def test_slave_of_empty_master_waits_for_first_message(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        await until(lambda: case.server.replication.slaves[0].state is SlaveState.IN_SYNC)
        await slave.copy_to(await fill(case, 1))
        assert slave.log == log_of(case)


async def test_broken_connection_is_forgotten_and_slave_continues(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL)
    end = await fill(case)
    async with TestSlave(address(case)) as first:
        first.report(0)
        await first.copy_to(FILE)
        first.reset()
    await until(lambda: not case.server.replication.slaves)
    async with TestSlave(address(case)) as again:
        again.report(len(first.log))
        await again.copy_to(end)
        assert bytes(first.log) + again.log == log_of(case)
    assert closed_states(case) == []


# Who is closed


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", SlaveState.GARBAGE),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", SlaveState.GARBAGE),
        (b"\xff" * 8, SlaveState.GARBAGE),
        (b"\x00\x00\x10" + bytes(5), SlaveState.AHEAD),
        (bytes(8) + b"\x00\x00\x10" + bytes(5), SlaveState.ACK_BEYOND_END),
        (bytes(7), SlaveState.SILENT),
        (b"", SlaveState.SILENT),
    ],
)
async def test_peer_that_cannot_be_a_slave_is_closed_with_its_state(
    start_broker: StartBroker, raw: bytes, state: SlaveState
) -> None:
    case = await start_broker(**SMALL, ha_housekeeping_interval_ms=200 if state is SlaveState.SILENT else 20_000)
    await fill(case, 1)
    async with TestSlave(address(case)) as slave:
        slave.write(raw)
        await slave.closed()
    shown = await status(case)
    assert (shown.in_sync_slave_nums, shown.ha_connection_info) == (0, [])
    assert [slave.state for slave in shown.closed_connection_info or []] == [state.value]


async def test_slave_behind_retention_is_closed_with_its_state(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL)
    end = await fill(case)
    store = case.server.store
    store.commit_log.queue.flush_all()
    await until(lambda: store.commit_log.queue.remove_first(0, 1 << 40))  # not while the dispatcher holds it
    async with TestSlave(address(case)) as behind, TestSlave(address(case)) as fresh:
        behind.report(100)
        await behind.closed()
        fresh.report(0)
        await fresh.copy_to(end)
        assert fresh.begin == FILE == store.min_phy_offset
        assert fresh.log == log_of(case)
    assert closed_states(case) == [SlaveState.BEHIND_RETENTION]


async def test_slave_that_comes_again_and_again_causes_one_log_line(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    case = await start_broker(**SMALL)
    for _ in range(20):
        async with TestSlave(address(case)) as slave:
            slave.report(1_000_000)
            await slave.closed()
    lines = [line for line in caplog.messages if "a slave was disconnected" in line]
    assert len(lines) == 1
    assert "state='ahead'" in lines[0]
    assert closed_states(case) == [SlaveState.AHEAD]


async def test_thousand_connections_leave_room_for_slaves(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL)
    end = await fill(case, 3)
    host, _, port = address(case).rpartition(":")
    strangers = [await asyncio.open_connection(host, int(port)) for _ in range(MAX_CONNECTIONS)]
    try:
        await until(lambda: len(case.server.replication.slaves) == MAX_CONNECTIONS)
        async with TestSlave(address(case)) as late:
            late.report(0)
            await late.closed()
        assert closed_states(case) == [SlaveState.REFUSED]
        case.server.config.update({"haAllowedSlaves": "127.0.0.9"})
        case.server.store.reconfigure(case.server.config.store)
        async with TestSlave(address(case), "127.0.0.9") as slave:
            slave.report(0)
            await slave.copy_to(end)
        await until(lambda: not case.server.replication.slaves)  # the strangers are not allowed any more
    finally:
        for _, writer in strangers:
            writer.close()


# Acknowledgements


async def test_send_waits_for_slave_and_times_out_without_one(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **SYNC)
    began = time.monotonic()
    late = await case.send(body=b"one")
    assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert 0.25 < time.monotonic() - began < 10
    await case.dispatched(1)  # it is stored all the same
    assert (await case.send(properties={"WAIT": "false"})).code == ResponseCode.SUCCESS


async def test_send_is_acknowledged_once_slave_has_it(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **ALLOWED)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        sent = asyncio.ensure_future(case.send())
        await slave.copy_to(1, acks=False)
        await asyncio.sleep(0.05)
        assert not sent.done()
        slave.report(len(slave.log))
        assert (await sent).code == ResponseCode.SUCCESS


async def test_ack_before_bytes_were_sent_does_not_count(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **SYNC, ha_allowed_slaves="127.0.0.1", ha_transfer_batch_size_bytes=100)
    async with TestSlave(address(case)) as slave:
        sent = asyncio.ensure_future(case.send())
        await until(lambda: case.server.store.max_phy_offset > 0)
        slave.report(0)
        assert (await sent).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_two_connections_of_one_slave_are_one_copy(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **{**SYNC, "in_sync_replicas": 3, "ha_allowed_slaves": "127.0.0.0/8"})
    async with (
        TestSlave(address(case)) as one,
        TestSlave(address(case)) as same,
        TestSlave(address(case), "127.0.0.2") as other,
    ):
        for slave in (one, same):
            slave.report(0)
        copies = [asyncio.ensure_future(slave.copy_to(1 << 40)) for slave in (one, same, other)]
        await until(lambda: [slave.state for slave in case.server.replication.slaves].count(SlaveState.IN_SYNC) == 2)
        assert (await case.send()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        other.report(0)
        await until(lambda: [slave.state for slave in case.server.replication.slaves].count(SlaveState.IN_SYNC) == 3)
        assert (await case.send()).code == ResponseCode.SUCCESS
        for copy in copies:
            copy.cancel()


async def test_old_connection_of_one_slave_is_no_copy_of_another_at_its_address(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **{**SYNC, "in_sync_replicas": 3, "slave_timeout_ms": 1_000})
    server = case.server.replication._server
    assert server is not None
    server.set_members({"127.0.0.1": 2})
    async with (
        TestSlave(address(case)) as old,
        TestSlave(address(case)) as again,
        TestSlave(address(case)) as other,
    ):
        sent = asyncio.ensure_future(case.send())
        await until(lambda: case.server.store.max_phy_offset > 0)
        end = case.server.store.max_phy_offset
        old.report(0)
        other.report(0)
        await old.copy_to(end)
        again.report(end)
        assert (await sent).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await other.copy_to(end)
        old.reset()
        await until(lambda: case.server.replication.acks._votes == (end, end))


async def test_mirror_at_address_of_slave_is_no_copy_and_holds_no_file_for_long(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **ALLOWED)
    acks, server = case.server.replication.acks, case.server.replication._server
    assert server is not None
    for _ in range(30):
        await case.send(body=bytes(5_000), properties={"WAIT": "false"})
    end = case.server.store.max_phy_offset
    async with TestSlave(address(case)) as mirror:
        mirror.report(1)
        await mirror.copy_to(end, acks=False)
        assert acks.slowest_slave() is not None
        mirror.report(0)
        (connection,) = server._connections
        await until(lambda: not connection.acknowledges)
        assert acks.slowest_slave().offset == 1  # type: ignore[union-attr]  # it may be a slave that compares its end
        connection._asked_s -= 21
        assert acks.slowest_slave() is None
        assert acks.in_sync_copies(end) == 1
        assert [slave.is_voter for slave in case.server.replication.slaves] == [False]


async def test_slave_that_is_closed_while_its_socket_is_full_causes_no_error(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: SlaveConnection, *of: object) -> bool:
        asyncio.get_running_loop().call_soon(self.close, SlaveState.SILENT)
        return False

    monkeypatch.setattr(SlaveConnection, "_send", full)
    case = await start_broker(**SMALL)
    await fill(case, 1)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        await slave.closed()
    await until(lambda: closed_states(case) == [SlaveState.SILENT])
    await asyncio.sleep(0.05)
    assert not any("could not be sent" in line for line in caplog.messages)


async def test_log_that_master_cannot_open_is_named_with_its_error(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> bool:
        raise OSError(errno.EMFILE, "Too many open files")

    case = await start_broker(**SMALL)
    await fill(case, 1)
    await case.dispatched(1)
    monkeypatch.setattr(case.server.store.commit_log.queue.last, "hold_to_read", fail)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        await slave.closed()
    await until(lambda: closed_states(case) == [SlaveState.UNREADABLE])
    assert any("a slave was disconnected" in line and "Too many open files" in line for line in caplog.messages)


async def test_only_slave_that_name_server_lists_is_a_vote(
    start_namesrv: StartNamesrv, start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    namesrv = await start_namesrv()
    case = await start_broker(**SMALL, **SYNC, namesrv_addr=namesrv.address)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        copy = asyncio.ensure_future(slave.copy_to(1 << 40))
        assert (await case.send()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        (shown,) = (await status(case)).ha_connection_info
        assert (shown.in_sync, shown.voter) == (True, False)
        await until(lambda: any("sends do not wait for a slave" in line for line in caplog.messages))
        header = RegisterBrokerRequestHeader(
            broker_name="broker-a", broker_addr="localhost:1", cluster_name="DefaultCluster", broker_id=1,
            ha_server_addr="127.0.0.1:2",
        )  # fmt: skip
        request = RemotingCommand.request(header, RegisterBrokerBody().encode())
        await case.client.invoke(namesrv.address, request, 60_000)
        await until(lambda: case.server.replication.slaves[0].is_voter)
        assert (await case.send()).code == ResponseCode.SUCCESS
        copy.cancel()


async def test_message_that_waits_for_slave_blocks_no_other(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **ALLOWED)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        waiting = [asyncio.ensure_future(case.send(body=b"waits")) for _ in range(5)]
        await until(lambda: case.server.store.max_phy_offset > 0)
        for _ in range(5):
            assert (await case.send(properties={"WAIT": "false"})).code == ResponseCode.SUCCESS
        assert not any(sent.done() for sent in waiting)
        await slave.copy_to(case.server.store.max_phy_offset)
        assert {sent.code for sent in await asyncio.gather(*waiting)} == {ResponseCode.SUCCESS}


async def test_sync_flush_and_slave_are_both_waited_for(start_broker: StartBroker) -> None:
    case = await start_broker(**SMALL, **ALLOWED, flush_disk_type="SYNC_FLUSH")
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        copy = asyncio.ensure_future(slave.copy_to(1 << 40))
        assert (await case.send()).code == ResponseCode.SUCCESS
        assert case.server.store.flushed_offset == case.server.store.max_phy_offset
        copy.cancel()


async def test_too_few_copies_in_sync_refuse_send_where_java_does(start_broker: StartBroker) -> None:
    acting = {"enable_slave_acting_master": True}
    case = await start_broker(**SMALL, **SYNC, **acting, ha_allowed_slaves="127.0.0.1", total_replicas=2)
    refused = await case.send()
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    assert case.server.store.max_phy_offset == 0
    assert (await case.send(properties={"WAIT": "false"})).code == ResponseCode.SUCCESS
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        copy = asyncio.ensure_future(slave.copy_to(1 << 40))
        await until(lambda: case.server.replication.acks.in_sync_copies(0) == 2)
        assert (await case.send()).code == ResponseCode.SUCCESS
        copy.cancel()


# Start, and what is shown


async def test_master_whose_acknowledgements_wait_for_nobody_says_so(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await start_broker(broker_role="SYNC_MASTER")
    assert any("SYNC_MASTER waits for no slave: set inSyncReplicas=2" in line for line in caplog.messages)


@pytest.mark.parametrize(("allowed", "warned"), [("", True), ("10.0.0.0/8", False)])
async def test_guarded_broker_with_open_ha_port_says_so(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, tmp_path: Path, allowed: str, warned: bool
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts: []\n")
    await start_broker(acl_enable=True, acl_plain_file=str(accounts), bind_address="0.0.0.0", ha_allowed_slaves=allowed)
    assert any("aclEnable does not guard the HA port" in line for line in caplog.messages) is warned


async def test_taken_port_refuses_start_and_leaves_no_store(start_broker: StartBroker, tmp_path: Path) -> None:
    first = await start_broker()
    port = first.server.replication.port
    second = BrokerCase(tmp_path / "second", ha_listen_port=port)
    with pytest.raises(RemotingError, match=rf"127.0.0.1:{port}: Address already in use: set haListenPort, or haEna"):
        await second.server.start()
    await second.client.close()
    assert not (tmp_path / "second").exists()


async def test_wait_for_slaves_that_cannot_connect_is_refused() -> None:
    live = LiveConfig()
    live.update({"brokerRole": "SYNC_MASTER", "haEnable": "false"})
    with pytest.raises(ConfigError, match="haEnable=False is not allowed: true if brokerRole=SYNC_MASTER and inSyncRe"):
        live.update({"inSyncReplicas": "2"}, running=True)
    assert live.store.in_sync_replicas == 1


async def test_ha_info_has_addresses_of_master(start_broker: StartBroker) -> None:
    case = await start_broker()
    answer = (await case.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)).read(ExchangeHAInfoResponseHeader)
    assert (answer.master_address, answer.master_ha_address) == (case.server.address, address(case))
    assert answer.master_flush_offset == 0


async def test_retention_waits_for_slave_of_this_broker_up_to_disk_limit(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = await start_broker(**SMALL, ha_allowed_slaves="127.0.0.1", file_reserved_time_hours=0)
    end = await fill(case)
    cleaner = case.server.store._log_cleaner
    assert cleaner is not None
    monkeypatch.setattr(cleaner._space, "used_percent", lambda: 85.0)
    async with TestSlave(address(case)) as slave:
        slave.report(0)
        await slave.copy_to(end, acks=False)
        slave.report(FILE)
        await until(lambda: case.server.replication.acks.slowest_slave().offset == FILE)  # type: ignore[union-attr]
        case.server.store.commit_log.queue.flush_all()
        later = 4_000_000_000_000
        await until(lambda: cleaner._remove_first(later))  # the slave has it
        assert not cleaner._remove_first(later)
        assert case.server.store.min_phy_offset == FILE
        monkeypatch.setattr(cleaner._space, "used_percent", lambda: 85.1)
        await until(lambda: cleaner._remove_first(later))
        assert case.server.store.min_phy_offset == 2 * FILE
    assert any("retention cuts off the slave 127.0.0.1:" in line for line in caplog.messages)
