"""``gantrymq store rebuild``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.rebuilding import make_here, rebuild_store
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf

if TYPE_CHECKING:
    from gantrymq.config.properties import Reading
    from gantrymq.tools.rebuild import RebuildReport


def rebuild(
    store: Store,
    queues: Annotated[bool, typer.Option("--queues", help="Rebuild the consume queues.")] = False,
    index: Annotated[bool, typer.Option("--index", help="Rebuild the index files.")] = False,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Rebuild consume queues and index files from the commit log.

    Rebuilds both if neither --queues nor --index is given. The command takes
    the store's lock. The old files are replaced when all new ones are
    durable. The log is not changed. Damage in it is skipped, and the exit
    code is 1. With --engine spark executors write the same files, and this
    process swaps them in.

    Examples of use:

        gantrymq store rebuild /data/store
        gantrymq store rebuild /data/store --index --set maxHashSlotNum=5000000 --set maxIndexNum=20000000
        gantrymq store rebuild /data/store --engine spark --spark-conf spark.master=spark://host:7077
        gantrymq store rebuild /data/store --json
    """
    makes = make_here if engine is Engine.LOCAL else partial(_on_spark, spark_conf)
    raise typer.Exit(
        rebuild_store(store, config, set_, queues=queues, index=index, json=json, makes=makes, engine=engine.value)
    )


def _on_spark(
    spark_conf: list[str] | None, store: Path, reading: Reading, *, queues: bool, index: bool
) -> RebuildReport:
    from gantrymq.cli.spark_engine import on_spark

    with on_spark(spark_conf) as spark:
        from gantrymq.spark.pipelines import rebuild_on_spark

        return rebuild_on_spark(spark, store, reading.config, queues=queues, index=index, given=reading.given)
