"""The programs of examples/ do what they say. Those of Spark streams are in tests/spark/test_examples.py."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gantrymq import EmbeddedBroker, LitePullConsumer, Message, Producer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_example_orders_runs_at_cluster(rocketmq_session: EmbeddedBroker) -> None:
    assert run("orders.py", rocketmq_session.namesrv, "--orders", 20) == "20 orders sent, 20 billed\n"
    assert sum(rocketmq_session.consumer_offsets("billing", "orders").values()) == 20


def test_example_reminders_runs_with_embedded_broker() -> None:
    lines = run("reminders.py").splitlines()
    assert sorted(lines) == ["5 reminders handled", *(f"reminder {number}" for number in range(5))]


@pytest.mark.slow
def test_example_shop_tests_pass() -> None:
    plain = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = [sys.executable, "-m", "pytest", *plain, str(EXAMPLES / "test_shop.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout


@pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette.testclient.")
def test_example_web_service_answers(rocketmq_session: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.testclient import TestClient

    monkeypatch.setenv("ROCKETMQ", rocketmq_session.namesrv)
    app = runpy.run_path(str(EXAMPLES / "service.py"))["app"]
    with TestClient(app) as client:
        numbers = [f"web-{number}" for number in range(5)]
        for number in numbers:
            assert client.post(f"/orders/{number}", content=b"{}").status_code == 202
        deadline = time.monotonic() + 60
        while not set(numbers) <= set(client.get("/handled").json()):
            assert time.monotonic() < deadline, "the orders were not handled"
            time.sleep(0.05)


def test_example_open_telemetry_joins_send_and_process(rocketmq_session: EmbeddedBroker) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    hook = runpy.run_path(str(EXAMPLES / "open_telemetry.py"))["OpenTelemetryHook"]()
    hook.tracer = provider.get_tracer("test")
    with Producer(rocketmq_session.namesrv, hooks=[hook]) as producer:
        producer.send(Message("Spans", b"traced"))
    with LitePullConsumer(
        rocketmq_session.namesrv, consumer_group="spans", consume_from_where="CONSUME_FROM_FIRST_OFFSET", hooks=[hook]
    ) as consumer:
        consumer.subscribe("Spans")
        assert [message.body for message in consumer.poll(20_000)] == [b"traced"]
    sent, processed = exporter.get_finished_spans()
    assert (sent.name, processed.name) == ("send Spans", "process Spans")
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id


@pytest.mark.slow
def test_example_explore_topics_runs_on_spark(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store") as broker, Producer(broker.namesrv) as producer:
        for number in range(12):
            producer.send(Message("orders", b'{"cents": 100}', tags="paid" if number % 3 else "open"))
    said = run("explore_topics.py", tmp_path / "store", "orders")
    assert "|paid|    8|" in said
    assert "|open|    4|" in said
    assert "| 1200|" in said
