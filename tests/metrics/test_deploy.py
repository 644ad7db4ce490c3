"""What deploy/ and docs/ say of metrics: names and labels that exist, rules that fire, and pages of today."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from gantrymq.broker.metrics import catalog
from gantrymq.cli.main import exit_code
from gantrymq.grpc import metrics as grpc_metrics
from gantrymq.metrics.instruments import Kind
from gantrymq.tables import metrics as table_metrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROMTOOL = [
    ("check", "config", "prometheus.yml"),
    ("check", "rules", "alerts.yml"),
    ("test", "rules", "alerts_test.yml"),
]
COMMON = {"cluster", "node_id", "node_type", "le"}
NAME = re.compile(r"\b((?:rocketmq|gantrymq)_\w+)(\{[^}]*\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
BY = re.compile(r"\bby \(([^)]*)\)")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported() -> dict[str, set[str]]:
    """The names of all samples, each with its labels."""
    found = {}
    for metric in (*catalog.ALL, *grpc_metrics.ALL, *table_metrics.ALL):
        ends = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        found |= {metric.prometheus_name + end: set(metric.labels) | COMMON for end in ends}
    return found


def wrong_in(expression: str) -> list[str]:
    """The names and labels of an expression that no broker exports."""
    known, wrong, labels = exported(), [], set[str]()
    for name, selector in NAME.findall(expression):
        if name not in known:
            wrong.append(name)
            continue
        labels |= known[name]
        wrong += [f"{name}: {label}" for label in LABEL.findall(selector) if label not in known[name]]
    for by in BY.findall(expression):
        wrong += [f"by {label}" for label in re.split(r",\s*", by) if label not in labels]
    return wrong


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_alerts_query_only_exported_metrics() -> None:
    wrong = {rule["alert"]: found for rule in rules() if (found := wrong_in(rule["expr"]))}
    assert wrong == {}


def test_dashboard_queries_only_exported_metrics() -> None:
    made = json.loads((DEPLOY / "grafana" / "dashboards" / "gantrymq.json").read_text())
    queries = [target["expr"] for panel in made["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 40
    assert {query: found for query in queries if (found := wrong_in(query))} == {}
    assert wrong_in("sum by (topic) (rocketmq_topic_number{az='x'})") == ["rocketmq_topic_number: az", "by topic"]


def test_dashboard_equals_output_of_script() -> None:
    made = script("grafana_dashboard")
    assert made.PAGE.read_text("utf-8") == made.dashboard(), "run scripts/grafana_dashboard.py"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("words", PROMTOOL)
def test_promtool_accepts_them(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((DEPLOY / "alerts_test.yml").read_text())["tests"]
    firing = tests[0]["promql_expr_test"][1]
    assert firing["expr"].startswith("count(count by (alertname)")
    assert firing["exp_samples"][0]["value"] == len(rules())


def landings() -> list[list[str]]:
    """The commands of the files that run `gantrymq table land`."""
    manifest = yaml.safe_load((DEPLOY / "kubernetes" / "land.yaml").read_text())
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    unit = (DEPLOY / "gantrymq-land.service").read_text()
    (line,) = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.M)
    (options,) = re.findall(r'"OPTIONS=(.*)"', unit)
    return [container["args"], line.replace("$OPTIONS", options).split()]


@pytest.mark.parametrize("words", landings(), ids=["kubernetes", "systemd"])
def test_landing_of_deploy_has_options_that_exist(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr("gantrymq.cli.table.land.target", lambda *_: None)  # the lake of the file is not here
    monkeypatch.setattr("gantrymq.cli.table.land._land", lambda *_, **options: called.append(options))
    here = [word.replace("=5559", "=0").replace("0.0.0.0", "127.0.0.1") for word in words]
    assert exit_code(here) == 0
    assert called == [{"json": True}]
