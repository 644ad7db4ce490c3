"""RocketMQ for Spark: ``spark.read.format("rocketmq")`` over store directories and live clusters, with Arrow batches.

The public names below are imported on first use. If this package is installed, Spark finds the format through the
top-level module ``pyspark_rocketmq``. ``spark.dataSource.register(RocketMQDataSource)`` is for sessions that were
started before the installation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.spark.landing.land import land as land
    from gantrymq.spark.plan.stream_offsets import offsets_behind as offsets_behind
    from gantrymq.spark.source import RocketMQDataSource as RocketMQDataSource

_MODULES = {
    "RocketMQDataSource": "gantrymq.spark.source",
    "land": "gantrymq.spark.landing.land",
    "offsets_behind": "gantrymq.spark.plan.stream_offsets",
}
__all__ = ["RocketMQDataSource", "land", "offsets_behind"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'gantrymq.spark' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
