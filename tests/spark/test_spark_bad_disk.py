"""A bad disk under Spark: an error with the path and the byte, or a finding; never a Python worker that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bad_disk import BLOCK_BYTES, bad_blocks, image_of
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.message import Message
from gantrymq.spark.pipelines.export import export_on_spark
from gantrymq.spark.pipelines.rebuild import rebuild_on_spark
from gantrymq.spark.pipelines.salvage import salvage_on_spark
from gantrymq.spark.pipelines.verify import verify_on_spark
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.export import export_store
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 900
FILE_BYTES = 65_536
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=FILE_BYTES,
    mapped_file_size_consume_queue=4_000,
    max_hash_slot_num=500,
    max_index_num=1_000,
)
PARTS = [
    ("commitlog", 1, 2),
    ("index", 0, 1),
    *(
        pytest.param(part, marks=pytest.mark.slow)
        for part in (("commitlog", -1, 0), ("consumequeue", 0, 0), ("checkpoint", 0, 0))
    ),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A closed store, and a disk image that holds it."""
    path = tmp_path_factory.mktemp("whole") / "store"
    with MessageStore.open(path, CONFIG, housekeeping=False) as store:
        for n in range(MESSAGES):
            store.put(Message("orders", b"%0150d" % n, queue_id=n % 2, keys=[f"key-{n % 300}"]))
    return path, image_of(path, path.parent)


@pytest.fixture(params=PARTS, ids=lambda part: "-".join(map(str, part)))
def bad(request: pytest.FixtureRequest, image: tuple[Path, Path], tmp_path: Path) -> Iterator[tuple[Path, Path, int]]:
    """A store on a disk with one bad block, which file that is in, and the first byte of it."""
    kind, number, block = request.param
    found = [image[0] / kind] if (image[0] / kind).is_file() else sorted((image[0] / kind).rglob("*"))
    name = [path for path in found if path.is_file()][number].relative_to(image[0])
    with bad_blocks(image[1], tmp_path, (str(name), block)) as store:
        yield store, store / name, block * BLOCK_BYTES


def test_batch_with_bad_sector_skips_it_or_raises_with_its_range(
    spark: SparkSession, bad: tuple[Path, Path, int]
) -> None:
    store, path, begin = bad
    frame = spark.read.format("rocketmq").option("path", str(store))
    lenient = frame.option("failOnDataLoss", "false").load().select("queue_id", "queue_offset").collect()
    assert len(lenient) == MESSAGES or (path.parent.name == "commitlog" and MESSAGES - 20 < len(lenient) < MESSAGES)
    strict = frame.option("failOnDataLoss", "true").load()
    if path.parent.name == "index":  # which a batch does not read
        assert strict.count() == MESSAGES
        assert frame.option("keys", "key-7").load().count() == 3  # sought in the log
        return
    with pytest.raises(Exception, match="Input/output error") as raised:
        strict.count()
    assert str(path) in str(raised.value)
    assert str(begin) in str(raised.value)


def test_spark_tools_equal_local_engine_on_bad_disk(
    spark: SparkSession, bad: tuple[Path, Path, int], tmp_path: Path
) -> None:
    store, path, _ = bad
    expected = list(verify_store(store))
    found = list(verify_on_spark(spark, store))
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert path.relative_to(store) in [one.path for one in found]
    saved = salvage_on_spark(spark, store, tmp_path / "saved")
    assert saved == salvage_store(store, tmp_path / "saved here")
    exported, here = export_on_spark(spark, store, tmp_path / "out"), export_store(store, tmp_path / "out here")
    assert exported.rows == here.rows
    assert exported.account == here.account


def test_rebuild_of_bad_disk_on_spark_names_losses_of_local_engine(
    spark: SparkSession, image: tuple[Path, Path], tmp_path: Path
) -> None:
    name = sorted((image[0] / "commitlog").iterdir())[1].relative_to(image[0])
    reports = []
    for engine in ("here", "spark"):
        (scratch := tmp_path / engine).mkdir()
        with bad_blocks(image[1], scratch, (str(name), 2)) as store:
            report = rebuild_store(store) if engine == "here" else rebuild_on_spark(spark, store)
            lost = [(one.start, one.end, one.reason) for one in report.lost]
            reports.append((report.records, lost, report.account.messages))
    assert reports[0] == reports[1]


def test_stream_names_bad_sector_and_continues_if_allowed(
    spark: SparkSession, image: tuple[Path, Path], tmp_path: Path
) -> None:
    name = sorted((image[0] / "commitlog").iterdir())[-1].relative_to(image[0])
    with bad_blocks(image[1], tmp_path, (str(name), 1)) as store:
        frame = spark.readStream.format("rocketmq").option("path", str(store)).option("startingOffsets", "earliest")
        query = _written(frame.option("failOnDataLoss", "false").load(), tmp_path / "lenient")
        query.awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "lenient" / "rows")).count()
        assert MESSAGES - 20 < rows < MESSAGES
        query = _written(frame.option("failOnDataLoss", "true").load(), tmp_path / "strict")
        with pytest.raises(Exception, match="Input/output error") as raised:
            query.awaitTermination()
        assert str(store / name) in str(raised.value)
        assert str(BLOCK_BYTES) in str(raised.value)


def _written(frame, where: Path):  # type: ignore[no-untyped-def]
    writer = frame.select("queue_id", "queue_offset").writeStream.format("parquet").trigger(availableNow=True)
    return writer.option("path", str(where / "rows")).option("checkpointLocation", str(where / "marks")).start()
