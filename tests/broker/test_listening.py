"""The broker's port, and two below it RocketMQ's VIP channel, where clients go that are told to."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker
from structlog.testing import capture_logs

from gantrymq.broker.ports import ReservedPorts
from gantrymq.errors import RemotingError
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from interop.fixed_ports import fixed_port


async def ask(case: BrokerCase, port: int) -> int:
    request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    return (await case.client.invoke(f"127.0.0.1:{port}", request, 60_000)).code


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.asyncio
async def test_both_ports_answer_and_close_together(start_broker: StartBroker) -> None:
    case = await start_broker(listen_port=fixed_port())
    assert [await ask(case, case.server.port - below) for below in (0, 2)] == [ResponseCode.SUCCESS] * 2
    await case.stop()
    for below in (0, 2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", case.server.port - below))


@pytest.mark.asyncio
async def test_displayed_port_is_listening_port(broker: BrokerCase) -> None:
    shown = (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode().splitlines()
    assert f"listenPort={broker.server.port}" in shown


@pytest.mark.asyncio
async def test_restarted_broker_has_both_ports(tmp_path: Path, start_broker: StartBroker) -> None:
    first = await start_broker(tmp_path / "first", listen_port=fixed_port())
    await ask(first, first.server.port - 2)  # its connection lingers on
    await first.stop()
    second = await start_broker(tmp_path / "second", listen_port=first.server.port)
    assert await ask(second, first.server.port - 2) == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_broker_with_second_port_in_use_logs_warning_and_starts(start_broker: StartBroker) -> None:
    with ReservedPorts("127.0.0.1", 0) as free:
        assert free.vip is not None
        free.vip.listen()
        with capture_logs() as logs:
            # The port is reserved until the broker has it: a test beside this one cannot be given it.
            case = await start_broker(listen_port=free.port)
        assert await ask(case, free.port) == ResponseCode.SUCCESS
        await case.stop()
    warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert warnings == ["no VIP channel: its port is taken"]


def test_free_port_has_free_second_port_below_it() -> None:
    reserved = [ReservedPorts("127.0.0.1", 0) for _ in range(50)]
    ports = [port for one in reserved for port in (one.port, one.port - 2)]
    try:
        assert all(one.vip is not None for one in reserved)
        assert len(set(ports)) == len(ports)
    finally:
        for one in reserved:
            one.__exit__(None, None, None)


def test_broker_with_used_port_does_not_start() -> None:
    with listening() as taken, pytest.raises(RemotingError, match=f"cannot listen on 127.0.0.1:{taken}"):
        ReservedPorts("127.0.0.1", taken)


@pytest.mark.asyncio
async def test_first_request_is_answered_after_kernels_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout that has changed they take half a minute to compile, and a client gives up after three seconds."""
    case = BrokerCase(tmp_path)
    told: list[int] = []

    def load() -> int:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", case.server.port))
        told.append(case.server.port)
        return 0

    monkeypatch.setattr("gantrymq.broker.server.library", load)
    async with case:
        assert told == [case.server.port]
        assert await ask(case, case.server.port) == ResponseCode.SUCCESS
