"""Which origin the options name."""

from __future__ import annotations

from gantrymq.errors import ConfigError
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.origin import Origin


def open_origin(options: ReadOptions) -> Origin:
    """Store directories (``path``); nothing is opened before it is asked. Raises ConfigError for a ``nameserver``."""
    if options.nameserver is not None:
        raise ConfigError("nameserver", options.nameserver, "path: reading from a cluster is not there yet")
    from gantrymq.spark.store_origin import StoreOrigin

    return StoreOrigin(options)
