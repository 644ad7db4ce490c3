"""Our closed name server with the real client, mqadmin and broker, which sign what they ask it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq import AdminClient
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import read_namesrv_config

from .fixed_ports import fixed_port
from .java import JavaError, run_java
from .java_cluster import JavaCluster
from .our_broker import OurBroker

pytestmark = pytest.mark.slow
_AUTH = "org.apache.rocketmq.auth"
ROOT = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "rootpw"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "innerpw"}),
}
OF_JAVA = {
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
KEYS = {"access_key": "root", "secret_key": "rootpw"}


@pytest.fixture
def namesrv(java: None, tmp_path: Path) -> Iterator[str]:
    loop = LoopThread("namesrv")
    server = NamesrvServer(replace(read_namesrv_config(ROOT), listen_port=fixed_port()), home=tmp_path / "namesrv")
    loop.run(server.start())
    yield server.address
    loop.close(server.shutdown())


def test_real_client_signs_what_it_asks_name_server(namesrv: str, tmp_path: Path) -> None:
    with JavaCluster(None, namesrv=namesrv, broker=False) as client, OurBroker(tmp_path / "s", ROOT, namesrv=namesrv):
        with AdminClient(namesrv, **KEYS) as admin:
            admin.create_topic("orders")
        assert [line["status"] for line in client.send([{"topic": "orders", "body": "x"}], **KEYS)] == ["SEND_OK"]
        for wrong in ({}, KEYS | {"secret_key": "wrong"}):
            with pytest.raises(JavaError):
                client.send([{"topic": "orders", "body": "x"}], **wrong)


def test_real_mqadmin_works_with_account_of_tools_file(
    namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    file = tmp_path / "lines"
    file.write_text(f"updateKvConfig -s N -k key -v value\ngetNamesrvConfig -n {namesrv}\nclusterList\n")
    with OurBroker(tmp_path / "s", ROOT | {"brokerName": "broker-of-users"}, namesrv=namesrv):
        for secret in ("wrong", "rootpw"):
            (conf / "tools.yml").write_text(f"accessKey: root\nsecretKey: {secret}\n")
            monkeypatch.setenv("ROCKETMQ_HOME", str(conf.parent))
            printed = run_java("mqadmin", None, str(file), namesrv=namesrv, timeout=600, cwd=tmp_path)
            text = "".join(line["printed"] for line in printed)
            assert ("broker-of-users" in text) == (secret == "rootpw")
            assert "innerpw" not in text


def test_real_broker_registers_at_name_server(namesrv: str, tmp_path: Path) -> None:
    with JavaCluster(tmp_path / "store", namesrv=namesrv, auth=ROOT | OF_JAVA) as cluster:
        with AdminClient(namesrv, **KEYS) as admin:
            assert cluster.broker in str(admin.cluster_info())
        assert [line["status"] for line in cluster.send([{"topic": "orders", "body": "x"}], **KEYS)] == ["SEND_OK"]
