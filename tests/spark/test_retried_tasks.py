"""Tasks that Spark runs again after an error in the middle of a write: no row is lost."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sink_cases import schema_of
from spark_cases import fields, rows_of

from gantrymq import EmbeddedBroker, Message
from gantrymq.spark import RocketMQDataSource
from store_cases import open_store

ROWS = 240
BODY_BYTES = 4000  # so that a batch of rows leaves Spark's buffers
EVERY = {b"%08d" % number + bytes(BODY_BYTES) for number in range(ROWS)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with open_store(path=tmp_path / "source") as store:
        for number, body in enumerate(sorted(EVERY)):
            store.put(Message("orders", body, queue_id=number % 2, keys=[f"k{number}"]))
    return tmp_path / "source"


def from_cluster(namesrv: str, topic: str) -> Counter[bytes]:
    """How often each body is in a topic."""
    reader = RocketMQDataSource({"nameserver": namesrv, "subscribe": topic}).reader(fields("body"))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return Counter(row["body"] for batch in batches for row in batch.to_pylist())


@pytest.mark.slow
def test_store_has_every_row_once_and_cluster_at_least_once(source: Path, tmp_path: Path) -> None:
    """What a task has sent when it fails is sent again: such rows are in the cluster several times."""
    room = tmp_path / "room"
    room.mkdir()
    driver = Path(__file__).with_name("retry_driver.py")
    with EmbeddedBroker() as broker:
        command = [sys.executable, str(driver), str(source), str(room), broker.namesrv]
        said = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False, cwd=room)
        assert said.returncode == 0, said.stderr[-3000:]
        sent = {kind: from_cluster(broker.namesrv, kind) for kind in ("batch", "stream")}
    assert len(list(room.glob("attempt-*-2"))) == len(list(room.glob("attempt-*-0"))) >= 8
    for kind, found in sent.items():
        assert Counter(row["body"] for row in rows_of(room / kind, "body")) == dict.fromkeys(EVERY, 1)
        assert set(found) == EVERY
        assert found.total() >= ROWS


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_retried_task_sends_all_rows_again(kind: str) -> None:
    """The rows of its first batch are in the cluster twice, the others once."""
    first, second = (
        pa.record_batch({"topic": ["again"] * 20, "body": [b"%d" % at for at in range(low, low + 20)]})
        for low in (0, 20)
    )

    def failing() -> Iterator[pa.RecordBatch]:
        yield first
        raise RuntimeError("the task fails")

    with EmbeddedBroker() as broker:
        source, schema = RocketMQDataSource({"nameserver": broker.namesrv}), schema_of("topic string, body binary")
        writer: Any = source.writer(schema, False) if kind == "batch" else source.streamWriter(schema, False)
        with pytest.raises(RuntimeError, match="the task fails"):
            writer.write(failing())
        assert writer.write(iter([first, second])).rows == 40
        found = from_cluster(broker.namesrv, "again")
    assert found == {b"%d" % at: 2 if at < 20 else 1 for at in range(40)}
