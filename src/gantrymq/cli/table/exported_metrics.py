"""The metrics of ``gantrymq table land --set metricsExporterType=…``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gantrymq.cli.terminal import print_error

if TYPE_CHECKING:
    from gantrymq.tables.metrics import LandingMetrics


@contextmanager
def exported_metrics(assignments: list[str] | None) -> Iterator[LandingMetrics | None]:
    """Export metrics while the command runs; None if the settings do not ask for it.

    Raises ConfigError for a setting that is not of an exporter, RemotingError if the port is taken.
    """
    if not assignments:
        yield None
        return
    from gantrymq.clock import SystemClock
    from gantrymq.config.exporter_settings import DISABLE, ExporterConfig
    from gantrymq.config.keys import check_values, fields_by_key, read_fields
    from gantrymq.config.properties import parse_assignments
    from gantrymq.errors import ConfigError
    from gantrymq.metrics.background import BackgroundExporter
    from gantrymq.tables.metrics import LandingMetrics

    entries = parse_assignments(assignments)
    known = fields_by_key(ExporterConfig)
    for key, value in entries.items():
        if key not in known:
            raise ConfigError(key, value, f"a key of exporters of metrics: {', '.join(known)}")
    config = ExporterConfig(**read_fields(ExporterConfig, entries))
    check_values(config)
    if config.metrics_exporter_type == DISABLE:
        yield None
        return
    metrics = LandingMetrics(SystemClock())
    exporter = BackgroundExporter(config, metrics.families, metrics.node)
    if exporter.address:
        print_error(f"metrics are served at http://{exporter.address}/metrics")
    try:
        yield metrics
    finally:
        exporter.close()
