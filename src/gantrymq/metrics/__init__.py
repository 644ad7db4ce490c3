"""Metrics: instruments, a Prometheus endpoint, and exports through OpenTelemetry."""
