"""Which origin the options name."""

from __future__ import annotations

from gantrymq.spark.options import ReadOptions
from gantrymq.spark.origin import Origin


def open_origin(options: ReadOptions) -> Origin:
    """A live cluster (``nameserver``) or store directories (``path``); nothing is opened before it is asked."""
    if options.nameserver is not None:
        from gantrymq.spark.cluster_origin import ClusterOrigin

        return ClusterOrigin(options)
    from gantrymq.spark.store_origin import StoreOrigin

    return StoreOrigin(options)
