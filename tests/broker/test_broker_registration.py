"""What a broker tells name servers of itself, and what they pass on."""

from __future__ import annotations

import pytest
from broker_cases import StartBroker, StartNamesrv

from gantrymq.remoting.bodies.topic import RegisterBrokerBody
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("is_on", [True, False])
async def test_slave_is_told_ha_address_of_master_that_has_one(
    start_namesrv: StartNamesrv, start_broker: StartBroker, is_on: bool
) -> None:
    """A Java slave connects to whatever address it is told, for ever."""
    namesrv = await start_namesrv()
    broker = await start_broker(namesrv_addr=namesrv.address, ha_enable=is_on, broker_ip2="127.0.0.3")
    slave = RegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr="127.0.0.1:1", cluster_name="DefaultCluster", broker_id=1,
        ha_server_addr="127.0.0.1:2",
    )  # fmt: skip
    request = RemotingCommand.request(slave, RegisterBrokerBody().encode())
    answer = await broker.client.invoke(namesrv.address, request, 60_000)
    told = answer.read(RegisterBrokerResponseHeader)
    port = broker.server.replication.port
    address = f"127.0.0.3:{port}" if is_on else None
    assert (told.master_addr, told.ha_server_addr) == (broker.server.address, address)
    assert (port > 0) is is_on
