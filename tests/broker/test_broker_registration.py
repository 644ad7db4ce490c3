"""What a broker tells name servers of itself, and what they pass on."""

from __future__ import annotations

import pytest
from broker_cases import StartBroker, StartNamesrv

from gantrymq.remoting.bodies.topic import RegisterBrokerBody
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader

pytestmark = pytest.mark.asyncio


async def test_slave_of_master_without_ha_server_gets_no_ha_address(
    start_namesrv: StartNamesrv, start_broker: StartBroker
) -> None:
    """A Java slave connects to whatever address it is told, for ever."""
    namesrv = await start_namesrv()
    broker = await start_broker(namesrv_addr=namesrv.address)
    slave = RegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr="127.0.0.1:1", cluster_name="DefaultCluster", broker_id=1,
        ha_server_addr="127.0.0.1:2",
    )  # fmt: skip
    request = RemotingCommand.request(slave, RegisterBrokerBody().encode())
    answer = await broker.client.invoke(namesrv.address, request, 60_000)
    told = answer.read(RegisterBrokerResponseHeader)
    assert (told.master_addr, told.ha_server_addr) == (broker.server.address, None)
