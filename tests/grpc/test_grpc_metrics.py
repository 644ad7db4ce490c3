"""The metrics of gRPC: those of a broker that speaks it, and those of a proxy."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.embedded.proxy import Proxy
from gantrymq.errors import RemotingError
from gantrymq.grpc.protocol.codes import Code
from grpc_client import GrpcClient, message

PROM = "PROM"
UP = "rocketmq_proxy_up"
LATENCY = "gantrymq_grpc_latency_milliseconds_count"


def scrape(url: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples by name: their labels and values."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    with urllib.request.urlopen(url, timeout=60) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def counts(samples: dict[str, list[tuple[dict[str, str], float]]]) -> dict[tuple[str, str], float]:
    return {(labels["method"], labels["code"]): value for labels, value in samples[LATENCY]}


def call(address: str) -> None:
    """Three calls: one that succeeds, one that fails, and one that waits for messages."""
    with GrpcClient(address) as client:
        client.be_consumer("G", "T")
        assert client.send(message("T", b"1")).status.code == Code.OK
        assert client.send(message("a b", b"1")).status.code == Code.ILLEGAL_TOPIC
        assert client.receive("G", "T")[0] == Code.OK


CALLED = {("SendMessage", "ok"): 1, ("SendMessage", "illegal_topic"): 1, ("ReceiveMessage", "ok"): 1}


def test_broker_and_proxy_export_metrics_of_grpc() -> None:
    settings = {"metricsExporterType": PROM}
    with EmbeddedBroker(settings=settings, grpc=True) as broker:
        broker.create_topic("T", queues=1)
        broker.create_group("G")
        call(broker.grpc)
        found = scrape(broker.metrics_url)
        [(labels, value)] = found[UP]
        assert value == 1
        assert labels == {
            "cluster": "DefaultCluster",
            "node_id": socket.gethostname(),
            "node_type": "proxy",
            "proxy_mode": "local",
            "otel_scope_name": "broker-meter",
        }
        assert CALLED.items() <= counts(found).items()
        assert {labels["node_type"] for labels, _ in found[LATENCY]} == {"broker"}
        asked = {labels["request_code"] for labels, _ in found["rocketmq_rpc_latency_milliseconds_count"]}
        assert not any("send" in code for code in asked), "RocketMQ counts no requests of gRPC"

        config = ProxyConfig(
            namesrv_addr=broker.namesrv, grpc_server_port=0, metrics_exporter_type=PROM, metrics_prom_exporter_port=0,
            metrics_label="az:one", proxy_name="front",
        )  # fmt: skip
        proxy, loop = Proxy(config), LoopThread("proxy")
        loop.run(proxy.start())
        try:
            call(proxy.address)
            found = scrape(f"http://{proxy.metrics_address}/metrics")
            port = int(proxy.metrics_address.rpartition(":")[2])
            taken = ProxyConfig(
                namesrv_addr=broker.namesrv, grpc_server_port=0, metrics_exporter_type=PROM,
                metrics_prom_exporter_port=port,
            )  # fmt: skip
            with pytest.raises(RemotingError, match=r"for metrics: .*in use"):
                loop.run(Proxy(taken).start())
        finally:
            loop.close(proxy.shutdown())
        [(labels, _)] = found[UP]
        assert labels == {
            "az": "one",
            "cluster": "DefaultCluster",
            "node_id": "front",
            "node_type": "proxy",
            "proxy_mode": "cluster",
            "otel_scope_name": "broker-meter",
        }
        assert CALLED.items() <= counts(found).items()
