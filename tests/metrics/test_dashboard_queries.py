"""The queries of the dashboard, put to a real Prometheus that scrapes a broker under load: each has data.

So have the queries of dashboards by others that ask for metrics of RocketMQ 5.5.0.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from gantrymq import EmbeddedBroker
from gantrymq.grpc.protocol import messages
from interop.fixed_ports import fixed_port
from interop.metrics_load import Scrape, run_load, scrape

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "gantrymq.json"
WAIT_S = 120
# What Grafana puts in. The interval of scrapes is a second.
VARIABLES = {"$cluster": ".*", "$node": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "1m"}
# As in dashboards for RocketMQ 5 that are not ours.
OF_OTHERS = (
    "sum(rate(rocketmq_messages_in_total{cluster='DefaultCluster'}[1m]))",
    "sum(rate(rocketmq_messages_out_total{cluster='DefaultCluster'}[1m]))",
    "count(count by (topic) (rocketmq_messages_in_total{cluster='DefaultCluster'}))",
    "sum by (topic,consumer_group) (rocketmq_consumer_ready_messages{topic='made',consumer_group='pushed'})",
    "max(rocketmq_consumer_lag_latency_milliseconds{topic='made',consumer_group='pushed'})",
    "sum(rocketmq_consumer_inflight_messages{topic='made',consumer_group='pushed'})",
    "sum by (node_id) (rocketmq_storage_dispatch_behind_bytes)",
    "histogram_quantile(0.99, sum by (le, request_code) (rate(rocketmq_rpc_latency_milliseconds_bucket[1m])))",
)


class PrometheusProcess:
    """A Prometheus with one target."""

    def __init__(self, port: int, ready: subprocess.Popen[bytes]) -> None:
        self._url, self.process = f"http://127.0.0.1:{port}/api/v1", ready

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        """The series of an instant query. Raises HTTPError for a query that is not valid."""
        found: list[Any] = self.get("query", query=expression)["result"]
        return found


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[PrometheusProcess]:
    job = {"job_name": "gantrymq", "static_configs": [{"targets": [target]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = fixed_port()
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as process:
        try:
            yield PrometheusProcess(port, process)
        finally:
            process.terminate()


def expressions() -> list[str]:
    made = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in made["panels"] for target in panel.get("targets", ())]


def filled_in(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def await_scrapes(server: PrometheusProcess, count: int) -> None:
    """Wait until the target was scraped that often from now on."""
    deadline = time.monotonic() + WAIT_S
    began = time.time()
    query = f"count_over_time(up{{job='gantrymq'}}[1h]) and timestamp(up) > {began}"
    first: float | None = None
    while True:
        assert time.monotonic() < deadline, "Prometheus does not scrape"
        try:
            found = server.query(query)
        except OSError:  # not listening yet
            found = []
        if found:
            seen = float(found[0]["value"][1])
            first = seen if first is None else first
            if seen >= first + count:
                return
        time.sleep(0.2)


def call_over_grpc(address: str) -> None:
    """One call, which fails: the client has no id."""
    request_type, response_type = messages.types_of("QueryRoute")
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary(
            f"/{messages.SERVICE}/QueryRoute",
            request_serializer=request_type.SerializeToString,
            response_deserializer=response_type.FromString,
        )(request_type(), timeout=WAIT_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_every_query_of_dashboard_has_data(tmp_path: Path) -> None:
    settings = {"metricsExporterType": "PROM", "timerWheelEnable": True}
    series: dict[str, int] = {}
    with EmbeddedBroker(settings=settings, grpc=True) as broker:
        target = broker.metrics_url.removeprefix("http://").removesuffix("/metrics")
        call_over_grpc(broker.grpc)
        with prometheus(tmp_path, target) as server:
            await_scrapes(server, 1)

            def meanwhile() -> Scrape:
                found = scrape(target)
                if found.value("rocketmq_consumer_lag_messages", consumer_group="pushed") == 0 and not series:
                    await_scrapes(server, 3)  # a rate needs two, and the first may have begun before
                    series.update({one: len(server.query(filled_in(one))) for one in [*expressions(), *OF_OTHERS]})
                return found

            run_load(broker.namesrv, meanwhile)
            [target_found] = server.get("targets")["activeTargets"]
    assert target_found["lastError"] == ""
    assert len(series) > 50
    # A panel with a limit shows trouble: here no request waits.
    assert {one for one, count in series.items() if not count and not one.endswith("> 0")} == set()
