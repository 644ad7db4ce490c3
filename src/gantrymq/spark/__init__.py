"""RocketMQ for Spark: ``spark.read.format("rocketmq")`` over store directories, with Arrow batches.

The public name below is imported on first use. Where this package is installed, Spark finds the format by itself
(through the top-level module ``pyspark_rocketmq``); ``spark.dataSource.register(RocketMQDataSource)`` is for sessions
that were started before.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.spark.source import RocketMQDataSource as RocketMQDataSource

__all__ = ["RocketMQDataSource"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'gantrymq.spark' has no attribute {name!r}")
    from gantrymq.spark.source import RocketMQDataSource

    return RocketMQDataSource
