"""Instruments, and the texts that Prometheus' own parsers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from gantrymq.metrics.instruments import Counter, Family, Histogram, Kind, Metric, gauge
from gantrymq.metrics.prometheus import SnapshotCollector, label_name

SENDS = Metric("sends_total", Kind.COUNTER, "Sends.", ("topic", "kind"))
SIZE = Metric("size", Kind.HISTOGRAM, "Sizes.", ("topic",), "bytes", (10, 100))
AGE = Metric("age", Kind.GAUGE, "Ages.", ("topic",), "ms")


def encode_text(families: Sequence[Family], common: Mapping[str, str], *, is_open_metrics: bool = False) -> bytes:
    collector = SnapshotCollector(lambda: families, common)
    return generate_open_metrics(collector) if is_open_metrics else generate_latest(collector)


def samples(text: bytes, *, is_open_metrics: bool = False) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    read = read_open_metrics if is_open_metrics else read_text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(text.decode())
        for sample in family.samples
        if sample.name != "target_info"
    }


@pytest.mark.parametrize("is_open_metrics", [False, True])
def test_exposition_text_has_recorded_values(is_open_metrics: bool) -> None:
    sends, sizes = Counter(SENDS, 10), Histogram(SIZE, 10)
    sends.series(topic="T", kind="a").value += 2
    sends.series(topic="T", kind=None).value += 1
    for value in (1, 10, 11, 1_000):
        sizes.series(topic="T").record(value)
    families = [sends.family(), sizes.family(), gauge(AGE, [AGE.point(5, topic="T")], 10)]
    text = encode_text(families, {"az": "1"}, is_open_metrics=is_open_metrics)
    found = samples(text, is_open_metrics=is_open_metrics)
    here, topic = ("az", "1"), ("topic", "T")
    assert found == {
        ("sends_total", (here, ("kind", "a"), topic)): 2,
        ("sends_total", (here, topic)): 1,
        ("size_bytes_bucket", (here, ("le", "10.0"), topic)): 2,
        ("size_bytes_bucket", (here, ("le", "100.0"), topic)): 3,
        ("size_bytes_bucket", (here, ("le", "+Inf"), topic)): 4,
        ("size_bytes_count", (here, topic)): 4,
        ("size_bytes_sum", (here, topic)): 1_022,
        ("age_milliseconds", (here, topic)): 5,
    }


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40))
def test_any_text_is_accepted_as_label(text: str) -> None:
    sends = Counter(SENDS, 10)
    sends.series(topic=text, kind="a").value += 1
    encoded = encode_text([sends.family()], {})
    assert encoded.count(b"\nsends_total{") == 1  # a line break in a name makes no line
    [(_, labels)] = samples(encoded)
    assert dict(labels)["topic"] == text


def test_label_outside_utf_8_does_not_break_scrape() -> None:
    sends = Counter(SENDS, 10)
    sends.series(topic="a\ud800", kind="a").value += 1
    [(_, labels)] = samples(encode_text([sends.family()], {}))
    assert dict(labels)["topic"] == "a?"


def test_series_above_limit_share_overflow() -> None:
    sends = Counter(SENDS, 3)
    for topic in ("A", "B", "C", "D", "A"):
        sends.series(topic=topic, kind="a").value += 1
    ages = gauge(AGE, [AGE.point(age, topic=topic) for age, topic in enumerate("ABCD")], 3)
    found = samples(encode_text([sends.family(), ages], {"az": "1", "otel_scope_name": "x"}))
    overflow = (("otel_metric_overflow", "true"), ("otel_scope_name", "x"))  # and no other label, as in OpenTelemetry
    assert found["sends_total", overflow] == 2
    assert found["age_milliseconds", overflow] == 2  # that of C
    assert len(found) == 6
    sends.forget("topic", {"A"})
    sends.series(topic="E", kind="a").value += 1  # there is room again
    assert ("sends_total", (("kind", "a"), ("topic", "E"))) in samples(encode_text([sends.family()], {}))


def test_label_of_metric_overrides_label_of_operator() -> None:
    sends = Counter(SENDS, 2)
    sends.series(topic="T", kind="a").value += 1
    found = samples(encode_text([sends.family()], {"topic": "mine", "az-1": "x"}))
    assert found == {("sends_total", (("az_1", "x"), ("kind", "a"), ("topic", "T"))): 1}
    assert label_name("1st") == "_st"  # as OpenTelemetry does


def test_labels_are_named_and_their_order_does_not_matter() -> None:
    sends = Counter(SENDS, 10)
    sends.series(kind="a", topic="T").value += 1
    sends.series(topic="T", kind="a").value += 1
    assert [(point.labels, point.value) for point in sends.points()] == [(("T", "a"), 2)]


@pytest.mark.parametrize(
    "labels", [{"topic": "T"}, {"topic": "T", "kind": "a", "group": "G"}, {"topic": "T", "kin": "a"}]
)
def test_missing_or_unknown_label_is_refused_when_series_is_made(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="labels of sends_total: missing"):
        Counter(SENDS, 10).series(**labels)
    with pytest.raises(ValueError, match="labels of age: missing"):
        AGE.point(1, **labels | {"kind": "a"})
