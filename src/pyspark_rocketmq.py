"""Spark registers ``DefaultSource`` of every top-level module named ``pyspark_*`` by itself: the format "rocketmq".

An error in here would take every other Python data source of the session down with it. So importing never fails: where
the source cannot be loaded, there is a stand-in whose use is the error that says why.
"""

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


def _stand_in(reason: str) -> type[DataSource]:
    class Unusable(DataSource):
        """``format("rocketmq")`` where it cannot be loaded."""

        @classmethod
        def name(cls) -> str:
            """The short name of the format."""
            return "rocketmq"

        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(f'format("rocketmq") cannot be loaded: {reason}')

    return Unusable


DefaultSource: type[DataSource]
try:
    from gantrymq.spark.source import RocketMQDataSource as DefaultSource
except Exception as error:  # whatever is missing or does not fit
    DefaultSource = _stand_in(f"{type(error).__name__}: {error}")
