"""The client settings with which the driver and the executors ask a live cluster."""

from __future__ import annotations

from gantrymq.client.settings import ClientConfig
from gantrymq.remoting.transport.tls import tls_client
from gantrymq.spark.options import ReadOptions

ATTEMPTS = 10  # about 30 s of retries, so that a broker may restart meanwhile


def client_config(options: ReadOptions) -> ClientConfig:
    """The client's settings. Raises ConfigError.

    The namespace is not part of them: the selection of queues applies it, for stores and clusters alike.
    """
    assert options.nameserver is not None
    return ClientConfig(
        options.nameserver,
        access_key=options.access_key or "",
        secret_key=options.secret_key or "",
        tls=dict(options.tls),
    )


def require_certificates(config: ClientConfig) -> None:
    """Raise ConfigError if certificates that the settings name cannot be loaded on this machine."""
    tls_client(config.tls)
