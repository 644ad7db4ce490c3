"""Spark registers ``DefaultSource`` of every top-level module named ``pyspark_*`` by itself: the format "rocketmq".

An error in here would take every other Python data source of the session down with it. So importing never fails: where
the source cannot be loaded, there is a stand-in whose use is the error that says why. Where PySpark has no data sources
in Python at all (before 4.0), the stand-in is a plain class, which Spark does not register.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


def _stand_in(reason: str) -> Any:
    base: Any = object
    try:
        base = import_module("pyspark.sql.datasource").DataSource
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass  # ``reason`` says what is wrong with it

    class Unusable(base):  # type: ignore[misc]
        """``format("rocketmq")`` where it cannot be loaded."""

        @classmethod
        def name(cls) -> str:
            """The short name of the format."""
            return "rocketmq"

        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(f'format("rocketmq") cannot be loaded: {reason}')

    return Unusable


DefaultSource: "type[DataSource]"
try:
    from gantrymq.spark.source import RocketMQDataSource as DefaultSource
except KeyboardInterrupt:
    raise
except BaseException as error:  # whatever is missing or does not fit; a broken package may even call sys.exit
    DefaultSource = _stand_in(f"{type(error).__name__}: {error}")
