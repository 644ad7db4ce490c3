"""What a server needs to export metrics: instruments, and the exporters to Prometheus and OpenTelemetry.

Which metrics there are is said elsewhere: a broker's in :mod:`gantrymq.broker.metrics`, those of gRPC in
:mod:`gantrymq.grpc.metrics`.
"""
