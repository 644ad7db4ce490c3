"""A cluster whose servers insist on TLS, read and written under RocketMQ's ``tls.*`` keys as options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_cases import fields
from stream_cases import Stream

from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.embedded.restartable_broker import DEFAULTS
from gantrymq.embedded.standalone import Extras, Standalone
from gantrymq.errors import ConfigError, RemotingError
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.transport.tls import tls_client, tls_server
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.write.cluster import Sent

TLS = Path(__file__).parent.parent / "remoting" / "tls"
CERTIFICATE, KEY = str(TLS / "server.pem"), str(TLS / "server.key")
ON = {"tls.enable": "true"}
CHECKED = {**ON, "tls.client.authServer": "true", "tls.client.trustCertPath": CERTIFICATE}
KNOWN = {"tls.client.certPath": CERTIFICATE, "tls.client.keyPath": KEY}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our name server and broker: none comes in without TLS, nor without a certificate that they trust."""
    said = {"tls.server.mode": "enforcing", "tls.server.certPath": CERTIFICATE, "tls.server.keyPath": KEY}
    said |= {"tls.server.authClient": "true", "tls.server.trustCertPath": CERTIFICATE}
    config = LiveConfig()
    config.update({key: str(value) for key, value in DEFAULTS.items()} | {"listenPort": "0", "brokerIP1": "127.0.0.1"})
    extras = Extras(tls=tls_server(said), client_tls=tls_client(CHECKED | KNOWN))
    servers = Standalone(tmp_path_factory.mktemp("tls"), config, NamesrvConfig(listen_port=0), extras)
    loop = LoopThread("servers")
    loop.run(servers.start())
    yield f"127.0.0.1:{servers.namesrv_address.rpartition(':')[2]}"
    loop.close(servers.shutdown())


def write(namesrv: str, *bodies: bytes, **options: str) -> Any:
    patience = {"retryTimesWhenSendFailed": "0", "sendMsgTimeout": "30000"}  # of a machine with other work to do
    given = {"nameserver": namesrv, "topic": "TBW102", **patience, **options}
    writer = RocketMQDataSource(given).writer(fields("body"), overwrite=False)
    return writer.write(iter([pa.record_batch({"body": list(bodies)})]))


def read(namesrv: str, **options: str) -> list[bytes]:
    reader = RocketMQDataSource({"nameserver": namesrv, "subscribe": "TBW102", **options}).reader(fields("body"))
    found = [body for part in reader.partitions() for batch in reader.read(part) for body in batch["body"].to_pylist()]
    return sorted(found)


def test_rows_are_written_read_and_streamed_over_tls(namesrv: str) -> None:
    assert write(namesrv, b"a", b"b", **CHECKED, **KNOWN) == Sent(2)
    assert read(namesrv, **CHECKED, **KNOWN) == [b"a", b"b"]
    assert read(namesrv, **ON, **KNOWN) == [b"a", b"b"]
    assert read(namesrv, useTLS="true", **KNOWN) == [b"a", b"b"]
    assert read(namesrv, **{key.upper(): value for key, value in (CHECKED | KNOWN).items()}) == [b"a", b"b"]
    options = {"nameserver": namesrv, "subscribe": "TBW102", "startingOffsets": "earliest", **CHECKED, **KNOWN}
    with Stream("", "body", **options) as stream:
        assert sorted(row["body"] for row in stream.batch()) == [b"a", b"b"]
        write(namesrv, b"c", **CHECKED, **KNOWN)
        assert [row["body"] for row in stream.batch()] == [b"c"]


@pytest.mark.parametrize(
    "options", [{}, ON, CHECKED, {**ON, **KNOWN, "tls.client.authServer": "true"}], ids=["plain", "nobody", "no", "bad"]
)
def test_connection_without_tls_or_trust_raises(namesrv: str, options: dict[str, str]) -> None:
    """Without TLS, without a certificate of its own, or with no reason to trust the server's."""
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1"):
        read(namesrv, **options)
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1"):
        write(namesrv, b"never", **options)


WRONG: list[tuple[dict[str, str], str]] = [
    ({"tls.enable": "yes"}, "tls.enable='yes' is not allowed: true or false"),
    ({"useTLS": "1"}, "useTLS='1' is not allowed: true or false"),
    ({**ON, "tls.client.authServer": "on"}, "tls.client.authServer='on' is not allowed: true or false"),
    ({**ON, "useTLS": "true"}, "given twice, also as tls.enable"),
    ({**ON, "tls.client.trustcert": "x"}, "no such option; there is tls.client.trustCertPath"),
    ({**ON, "tls.server.mode": "x"}, "no such option; there is tls."),
    (KNOWN, "only with tls.enable=true"),
    ({**KNOWN, "tls.enable": "false"}, "only with tls.enable=true"),
    ({**ON, "tls.client.trustCertPath": CERTIFICATE}, "only with tls.client.authServer=true"),
    ({**ON, "tls.client.keyPath": KEY}, "only with tls.client.certPath"),
    ({**CHECKED, "tls.client.trustCertPath": "/nowhere.pem"}, "tls.client.trustCertPath='/nowhere.pem' is not allowed"),
    ({**ON, "tls.client.certPath": "/nowhere.pem"}, "tls.client.certPath='/nowhere.pem' is not allowed"),
    ({**ON, "tls.protocols": "SSLv3"}, "tls.protocols='SSLv3' is not allowed: TLSv1.2 and TLSv1.3"),
    ({**ON, "tls.ciphers": "none-such"}, "tls.ciphers='none-such' is not allowed"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_wrong_tls_options_are_named_before_connecting(options: dict[str, str], says: str) -> None:
    source = RocketMQDataSource({"nameserver": "127.0.0.1:1", "topic": "a", **options})
    for ask in (source.schema, lambda: source.reader(fields()), lambda: source.writer(fields("body"), overwrite=False)):
        with pytest.raises(ConfigError) as raised:
            ask()
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_files_need_no_tls(tmp_path: Path) -> None:
    source = RocketMQDataSource({"path": str(tmp_path), "useTLS": "true"})
    for ask in (source.schema, lambda: source.writer(fields("topic", "body"), overwrite=False)):
        with pytest.raises(ConfigError, match="only with nameserver: files need no TLS"):
            ask()
