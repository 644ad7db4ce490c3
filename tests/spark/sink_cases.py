"""What the tests of the sink into stores share: writers without Spark, what they leave, and commits that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gantrymq import MessageStore, StoreReader
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.write import store_sink
from gantrymq.spark.write.ledger import Ledger
from gantrymq.spark.write.options import WriteOptions
from gantrymq.spark.write.store_sink import StoreSink
from store_cases import numbered, open_store


def store_of_ten(path: Path) -> Path:
    """A store with small files and ten messages."""
    with open_store(path=path) as store:
        store.put_batch(numbered(10, topic="before"))
    return path


def writer(path: Path, schema: str = "topic string, body string", **options: object) -> Any:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    return RocketMQDataSource(given).writer(schema_of(schema), False)


def schema_of(ddl: str) -> StructType:
    """StructType.fromDDL without the JVM that it asks."""
    kinds: dict[str, DataType] = {
        "string": StringType(), "binary": BinaryType(), "int": IntegerType(), "bigint": LongType(),
        "timestamp": TimestampType(), "array<string>": ArrayType(StringType()),
        "map<string,string>": MapType(StringType(), StringType()),
    }  # fmt: skip
    return StructType([StructField(name, kinds[kind]) for name, kind in (one.split() for one in ddl.split(", "))])


def batch(count: int, first: int = 0, topic: str = "orders") -> pa.RecordBatch:
    return pa.record_batch(
        {"topic": [topic] * count, "body": [f"{number:08d}" for number in range(first, first + count)]}
    )


def staged(path: Path, *batches: pa.RecordBatch, app: str = "q", version: int = 0) -> list[Path]:
    """The files of a batch, a task for each."""
    tasks = writer(path, txnAppId=app, txnVersion=version)
    return [Path(tasks.write(iter([one])).path) for one in batches]


def sink(path: Path, **store: int) -> StoreSink:
    keys = {f"store.{key}": str(value) for key, value in store.items()}
    return StoreSink(WriteOptions.parse({"path": str(path), **keys}))


def stored(path: Path, topic: str = "orders") -> list[str]:
    """The bodies of a topic in the order of the log."""
    with StoreReader.open(path) as reader:
        found = sorted((message.phy_offset, message.body.decode()) for message in reader.messages(topic))
    return [body for _, body in found]


def expected(count: int, first: int = 0) -> list[str]:
    return [f"{number:08d}" for number in range(first, first + count)]


def leftovers(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in (path / "spark").rglob("*") if file.suffix != ".json")


STEPS = 9
"""What a commit of three puts does, one after the other: begin, put, put, put, close, commit, remove, end; and the
close of the store that it looks for unfinished work in first."""


def commit_until_killed(
    path: Path, files: list[Path], kill_at: int, app: str = "q", batch: int = 1, query: str | None = None
) -> bool:
    """Commit in a process of its own, which kills itself with SIGKILL in front of step ``kill_at``."""
    child = os.fork()
    if child == 0:
        try:
            _count_steps(kill_at)
            sink(path).commit(app, batch, files, query)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _count_steps(kill_at: int) -> None:
    done = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            nonlocal done
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            return real(*args, **options)

        return step

    watched = [*((Ledger, name) for name in ("begin", "commit", "end")), (MessageStore, "put_batch")]
    for owner, name in [*watched, (MessageStore, "close"), (store_sink, "remove")]:
        setattr(owner, name, counted(getattr(owner, name)))
