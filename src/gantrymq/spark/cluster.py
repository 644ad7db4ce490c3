"""How options name a live cluster: the settings of the client that asks it, on the driver and on executors."""

from __future__ import annotations

from gantrymq.client.settings import ClientConfig
from gantrymq.remoting.transport.tls import tls_client
from gantrymq.spark.options import ReadOptions

ATTEMPTS = 10  # half a minute, in which a broker is started again: for who has answered before


def client_config(options: ReadOptions) -> ClientConfig:
    """The client's settings; raises ConfigError.

    The namespace is not among them: the selection of queues knows it, for stores and clusters alike.
    """
    assert options.nameserver is not None
    return ClientConfig(
        options.nameserver,
        access_key=options.access_key or "",
        secret_key=options.secret_key or "",
        tls=dict(options.tls),
    )


def require_certificates(config: ClientConfig) -> None:
    """Raise ConfigError where certificates that the settings name cannot be loaded on this machine."""
    tls_client(config.tls)
