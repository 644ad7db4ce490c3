"""The metrics of `gantrymq table land`, scraped over HTTP from the running command."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gantrymq.cli.main import exit_code
from gantrymq.fs.real import RealFileSystem
from store_cases import await_dispatch, numbered, open_store

PROM = ("--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0")


def test_running_landing_exports_rows_lag_and_commit_times(tmp_path: Path) -> None:
    source = tmp_path / "store"
    source.mkdir()
    with open_store(RealFileSystem(), source) as writer:
        for message in numbered(40):
            writer.put(message)
        await_dispatch(writer)
    table = str(tmp_path / "orders")
    command = [sys.executable, "-m", "gantrymq", "table", "land", str(source), table, "--topic", "orders"]
    running = subprocess.Popen(
        [*command, "--commit-rows", "30", "--every", "100ms", "--json", *PROM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert running.stderr is not None
        address = re.search(r"http://\S+", running.stderr.readline())
        assert address is not None
        assert [running.stdout.readline()[:16] for _ in range(2)] == ['{"kind":"commit"'] * 2
        text = ""
        while "gantrymq_table_last_pass_timestamp_seconds" not in text:
            with urllib.request.urlopen(address[0], timeout=10) as response:
                text = response.read().decode()
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert running.returncode == 0
    samples = dict(re.findall(rf'^gantrymq_table_(\w+){{[^}}]*table="{re.escape(table)}"[^}}]*}} (\S+)$', text, re.M))
    assert (samples["rows_total"], samples["dead_rows_total"], samples["missing_messages_total"]) == (
        "40.0",
        "0.0",
        "0.0",
    )
    assert (samples["commit_latency_milliseconds_count"], samples["lag_messages"]) == ("2.0", "0.0")
    assert re.search(r'^gantrymq_table_failed_passes_total{.*node_type="lander".*} 0.0$', text, re.M)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("metricsExporterType=PROMETHEUS", "metricsExporterType"),
        ("flushDiskType=SYNC_FLUSH", "a key of exporters of metrics"),
    ],
)
def test_wrong_metrics_setting_is_refused_before_table_exists(
    setting: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    words = ["table", "land", str(tmp_path / "store"), str(tmp_path / "orders"), "--topic", "orders"]
    assert exit_code([*words, "--set", setting]) == 2
    assert told in capfd.readouterr().err
    assert not (tmp_path / "orders").exists()
