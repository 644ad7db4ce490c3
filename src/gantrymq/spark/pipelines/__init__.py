"""A store's heavy jobs on Spark, for stores that outgrow one machine: rebuild, verify, salvage, export, analysis.

    from gantrymq.spark.pipelines import rebuild_on_spark
    rebuild_on_spark(spark, "/data/store")

The executors share the store's files with the driver, under the same paths. A job does and reports the same as its tool
in :mod:`gantrymq.tools`. No data that grows with the number of messages comes to the driver.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.spark.pipelines.analysis import StoreAnalysis as StoreAnalysis
    from gantrymq.spark.pipelines.analysis import analyze as analyze
    from gantrymq.spark.pipelines.export import export_on_spark as export_on_spark
    from gantrymq.spark.pipelines.rebuild import rebuild_on_spark as rebuild_on_spark
    from gantrymq.spark.pipelines.report import write_analysis as write_analysis
    from gantrymq.spark.pipelines.salvage import salvage_on_spark as salvage_on_spark
    from gantrymq.spark.pipelines.verify import verify_on_spark as verify_on_spark

_MODULES = {
    "StoreAnalysis": "analysis",
    "analyze": "analysis",
    "export_on_spark": "export",
    "rebuild_on_spark": "rebuild",
    "salvage_on_spark": "salvage",
    "verify_on_spark": "verify",
    "write_analysis": "report",
}
__all__ = [
    "StoreAnalysis",
    "analyze",
    "export_on_spark",
    "rebuild_on_spark",
    "salvage_on_spark",
    "verify_on_spark",
    "write_analysis",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'gantrymq.spark.pipelines' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gantrymq.spark.pipelines.{_MODULES[name]}"), name)
