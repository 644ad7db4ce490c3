"""Settings that cannot be honoured, in a program: nothing starts, unless acceptWithoutEffect names them."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from gantrymq import AdminClient, EmbeddedBroker
from gantrymq.broker.server import BrokerServer
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.embedded.async_broker import AsyncEmbeddedBroker
from gantrymq.embedded.proxy import Proxy
from gantrymq.errors import MQBrokerError, NotHonouredError
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.remoting.codes import ResponseCode

CONFIGURATIONS: dict[str, dict[str, str | int]] = {
    "slave of a master's role": {"brokerId": 1},
    "copies": {"brokerRole": "SYNC_MASTER", "allAckInSyncStateSet": True},
    "dledger": {"enableDLegerCommitLog": True},
    "controller": {"enableControllerMode": True, "brokerId": -1},
    "queues": {"storeType": "defaultRocksDB", "rocksdbCQDoubleWriteEnable": True},
    "tables": {"configManagerVersion": "v2"},
    "pop": {"popConsumerKVServiceInit": True, "popConsumerKVServiceEnable": True},
    "transactions": {"transRocksDBEnable": True},
    "timers": {"timerRocksDBEnable": True},
    "index": {"indexRocksDBEnable": True},
    "light queues": {"enableLmq": True, "enableMultiDispatch": True},
    "plug-in": {"messageStorePlugIn": "a.B"},
    "name server": {"clusterTest": True},
}


@pytest.mark.parametrize("settings", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_embedded_broker_with_refused_settings_creates_nothing(settings: dict[str, str | int], tmp_path: Path) -> None:
    for made in (EmbeddedBroker, AsyncEmbeddedBroker):
        with pytest.raises(NotHonouredError, match="acceptWithoutEffect="):
            made(tmp_path / "store", settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_half_of_access_control_is_refused_whatever_is_accepted(tmp_path: Path) -> None:
    for settings in ({"authorizationEnabled": True}, {"authenticationEnabled": True, "aclEnable": True}):
        with pytest.raises(NotHonouredError, match="cannot be honoured") as refused:
            EmbeddedBroker(tmp_path / "store", settings={**settings, "acceptWithoutEffect": ",".join(settings)})
        assert "acceptWithoutEffect" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_embedded_broker_starts_with_all_of_them_accepted_by_name(tmp_path: Path) -> None:
    every: dict[str, str | int] = {}
    for settings in CONFIGURATIONS.values():
        every |= {key: value for key, value in settings.items() if key not in ("brokerRole", "brokerId")}
    every |= {"brokerRole": "SYNC_MASTER", "metricsExporterType": "PROM"}
    names = sorted(every.keys() - {"brokerRole", "metricsExporterType", "clusterTest"})
    settings = {**every, "acceptWithoutEffect": ", ".join([*names, "clusterTest"])}
    with EmbeddedBroker(tmp_path / "store", settings=settings) as broker, AdminClient(broker.namesrv) as admin:
        info = admin.broker_runtime_info(broker.address)
        assert sorted(info["acceptedWithoutEffect"].split(",")) == names
        with urlopen(broker.metrics_url) as answer:
            metrics = answer.read().decode()
        assert len(re.findall(r'^gantrymq_accepted_without_effect{.*name="\w+".*} 1', metrics, re.M)) == len(names)
        with pytest.raises(MQBrokerError) as refused:  # what is accepted is decided at the start
            admin.update_broker_config({"acceptWithoutEffect": "x"}, broker=broker.address)
        assert refused.value.response_code == ResponseCode.INVALID_PARAMETER
        broker.restart()
        assert admin.broker_runtime_info(broker.address)["acceptedWithoutEffect"] == info["acceptedWithoutEffect"]


def test_broker_without_acceptances_reports_none() -> None:
    with EmbeddedBroker() as broker, AdminClient(broker.namesrv) as admin:
        assert "acceptedWithoutEffect" not in admin.broker_runtime_info(broker.address)


def test_broker_server_with_refused_key_binds_no_port_and_creates_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        config = LiveConfig(BrokerConfig(broker_id=2, listen_port=taken.getsockname()[1]))
        with pytest.raises(NotHonouredError, match="brokerId=2"):  # and not that the port is in use
            BrokerServer(tmp_path / "store", config)
    assert list(tmp_path.iterdir()) == []


def test_accepted_negative_broker_id_means_master(tmp_path: Path) -> None:
    config = LiveConfig(BrokerConfig(broker_id=-1, accept_without_effect="brokerId"))
    assert BrokerServer(tmp_path / "store", config).config.broker.broker_id == 0


def test_accepted_key_reaches_store(tmp_path: Path) -> None:
    async def opened() -> str:
        config = BrokerConfig(listen_port=0, accept_without_effect="brokerId,config/users")
        server = BrokerServer(tmp_path / "store", LiveConfig(config))
        await server.start()
        try:
            return server.store.config.accept_without_effect
        finally:
            await server.shutdown()

    assert asyncio.run(opened()) == "brokerId,config/users"


def test_name_server_and_proxy_with_refused_keys_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotHonouredError, match="clusterTest=true"):
        NamesrvServer(home=tmp_path / "n", others={"clusterTest": "true"})
    with pytest.raises(NotHonouredError, match="authorizationEnabled=true"):
        Proxy(ProxyConfig(namesrv_addr="127.0.0.1:1"), entries={"authorizationEnabled": "true"})
    accepted = ProxyConfig(namesrv_addr="127.0.0.1:1", accept_without_effect="authorizationEnabled,proxyMode")
    with pytest.raises(NotHonouredError, match="authorizationEnabled=true"):  # half of access control would be open
        Proxy(accepted, entries={"authorizationEnabled": "true"})
    (reason,) = Proxy(accepted, entries={"proxyMode": "LOCAL"}).accepted
    assert reason.name == "proxyMode"
    assert list(tmp_path.iterdir()) == []
