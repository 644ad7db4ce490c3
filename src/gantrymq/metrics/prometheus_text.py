"""The text formats of Prometheus: 0.0.4, and OpenMetrics 1.0.0, which Prometheus asks for first.

The texts have the same names and labels as RocketMQ's, whose exporter adds the label ``otel_scope_name`` to every
series and the metric ``target_info``. A metric without series is left out.

Source: PrometheusTextFormatWriter and OpenMetricsTextFormatWriter of Prometheus' client_java; OpenTelemetry's
Otel2PrometheusConverter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gantrymq.metrics.instruments import OVERFLOW_LABEL, Family, HistogramValue, Kind, LabelValues, Metric, Value

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SCOPE_LABEL = "otel_scope_name"
_TOTAL = "_total"
_NOT_IN_A_LABEL = re.compile("[^a-zA-Z0-9_]")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def encode_text(families: Sequence[Family], common: Mapping[str, str], *, is_open_metrics: bool = False) -> bytes:
    """The text of ``families``, sorted by name. ``common`` are the labels that every series has.

    Thread rule: any thread, because a family does not change.
    """
    lines: list[str] = []
    for family in sorted(families, key=lambda one: one.metric.prometheus_name):
        if family.points or family.overflow is not None:
            lines += _head(family.metric, is_open_metrics=is_open_metrics)
            others = {name: value for name, value in common.items() if name not in family.metric.labels}
            lines += _series(family, ",".join(_pair(label_name(name), value) for name, value in others.items()))
    lines += ["# TYPE target info", "target_info 1", "# EOF"] if is_open_metrics else _TARGET
    return ("\n".join(lines) + "\n").encode()


def label_name(name: str) -> str:
    """A name of an operator's label as Prometheus allows it: other characters become underscores."""
    made = _NOT_IN_A_LABEL.sub("_", name)
    return f"_{made}" if made[:1].isdigit() else made


_TARGET = ["# TYPE target_info gauge", "target_info 1"]


def _head(metric: Metric, *, is_open_metrics: bool) -> list[str]:
    name, kind = metric.prometheus_name, metric.kind.value
    about = metric.description.translate(_HELP_ESCAPES)
    if not is_open_metrics:
        return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    name = name.removesuffix(_TOTAL) if metric.kind is Kind.COUNTER else name
    units = [f"# UNIT {name} {metric.prometheus_unit}"] if metric.unit else []
    return [f"# TYPE {name} {kind}", *units, f"# HELP {name} {about}"]


def _series(family: Family, before: str) -> Iterator[str]:
    metric = family.metric
    for labels, value in family.points:
        yield from _lines(metric, _joined(before, metric.labels, labels), value)
    if family.overflow is not None:
        yield from _lines(metric, f"{before},{_pair(OVERFLOW_LABEL, 'true')}".lstrip(","), family.overflow)


def _joined(before: str, names: tuple[str, ...], labels: LabelValues) -> str:
    pairs = [before] if before else []
    pairs += [_pair(name, value) for name, value in zip(names, labels, strict=True) if value is not None]
    return ",".join(pairs)


def _lines(metric: Metric, labels: str, value: Value) -> Iterator[str]:
    name = metric.prometheus_name
    braced = f"{{{labels}}}" if labels else ""
    if not isinstance(value, HistogramValue):
        yield f"{name}{braced} {value}"
        return
    first, so_far = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{", 0
    for bound, count in zip((*metric.buckets, None), value.counts, strict=True):
        so_far += count
        yield f'{first}le="{"+Inf" if bound is None else float(bound)}"}} {so_far}'
    yield f"{name}_count{braced} {so_far}"
    yield f"{name}_sum{braced} {value.sum}"


def _pair(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'
