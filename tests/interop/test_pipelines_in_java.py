"""What a rebuild on Spark makes is what the real RocketMQ makes, and it opens it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gantrymq.spark.pipelines import jobs, rebuild_on_spark
from spark_session import spark
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, SMALL_KEYS

from .java import JavaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.spark]
__all__ = ["spark"]


def files(store: Path, part: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(store.glob(f"{part}/**/*")) if path.is_file()]


@pytest.mark.slow
def test_java_reads_what_spark_rebuilt(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    java = JavaStore(store, SMALL_KEYS)
    java.write(400, seed=7, profile="mixed", store_time=NOON_MS, store_time_step=1)
    read, queues, index = java.dump(), files(store, "consumequeue"), files(store, "index")
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    monkeypatch.setattr(jobs, "TASK_BYTES", 4 * SMALL.mapped_file_size_commit_log)
    rebuild_on_spark(spark, store, SMALL, given=GEOMETRY_KEYS)
    assert files(store, "consumequeue") == queues
    assert files(store, "index") == index
    assert java.dump() == read
