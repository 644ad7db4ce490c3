"""Spark reads and writes: our source and sink against Spark's Kafka connector at a real Kafka broker.

Both sides have the same bodies. Two Sparks of two cores each run from the first round to the last, because Kafka's
connector needs another Spark version than ours. One is idle while the other works. A read takes topic and body of every
message. Each side does its work once before the rounds.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.race.kafka import KafkaBroker, fetch_broker, fetch_spark, missing
from benchmarks.race.process import serving
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.spark_driver import SparkDriver
from benchmarks.race.track import Track

_ROWS = 2_000_000
_SIZES_BYTES = (100, 1024)
_TOPIC = "bench"
_QUEUES = 4
_FORMATS = {JAVA: "kafka", OURS: "rocketmq"}
_PATIENCE_MS = 1_200_000
_RATE = "rowsPerSecond"
_THEIRS = "theirs is Spark's Kafka connector at a Kafka broker"
_TOPICS = {
    "topicConfigTable": {_TOPIC: {"topicName": _TOPIC, "readQueueNums": _QUEUES, "writeQueueNums": _QUEUES, "perm": 6}}
}


def races(track: Track) -> Iterator[Race]:
    """Reads of a store and of a live broker, and a write; none if Java, Maven or PySpark is missing."""
    if track.java is None or missing() or find_spec("pyspark") is None:
        return
    for body_size in _SIZES_BYTES:
        for to in ("noop", "parquet"):
            yield _read(track, body_size, to, is_live=False)
        yield _read(track, body_size, "noop", is_live=True)
    yield _write(track, 1024)


class Stage:
    """Both Sparks, a Kafka broker and a store of the real RocketMQ with the same ``rows``.

    With ``is_live`` our side reads from the real broker over that store. A call with the folder of a race runs
    everything there until the ``with`` block ends.
    """

    def __init__(self, track: Track, body_size: int, *, is_live: bool = False) -> None:
        self._track, self._body_size, self._is_live = track, body_size, is_live
        self.rows = track.amount(_ROWS)
        self.kafka = ""  # the broker's address while it runs
        self._sparks: dict[str, SparkDriver] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._folder = Path()

    @contextmanager
    def __call__(self, folder: Path, **first: Any) -> Iterator[None]:
        """Start everything, fill Kafka from the store, and let each side do ``first``."""
        self._folder = folder
        jars, (connector, python) = fetch_broker(), fetch_spark()
        with ExitStack() as stack:
            kafka = stack.enter_context(KafkaBroker(jars, folder / "kafka"))
            self._sparks[JAVA] = stack.enter_context(SparkDriver(python, connector, folder / "theirs"))
            self._sparks[OURS] = stack.enter_context(SparkDriver(sys.executable, None, folder / "ours"))
            self.kafka = kafka.address
            self._options[JAVA] = {"kafka.bootstrap.servers": self.kafka, "subscribe": _TOPIC}
            self._options[OURS] = {"path": folder / "store", "subscribe": _TOPIC}
            self._fill(folder)
            if self._is_live:
                namesrv = stack.enter_context(serving(self._broker(folder / "store")))["namesrv"]
                self._options[OURS] = {"nameserver": namesrv, "subscribe": _TOPIC}
            for side in (JAVA, OURS):
                self._require_all(side)
                if first:
                    self.carry_out(side, **first)
            yield

    def carry_out(self, side: str, **order: Any) -> dict[str, float]:
        """Let a side execute an order. Returns its rows per second."""
        order = {"options": self._options[side], "target": self._folder / "target", **order}
        return {_RATE: self.rows / float(self._sparks[side].ask(format=_FORMATS[side], **order)["wall_s"])}

    @property
    def sparks(self) -> Mapping[str, SparkDriver]:
        """The Spark of each side, while they run."""
        return self._sparks

    def prepare(self, folder: Path) -> None:
        """Write the store with the real RocketMQ."""
        work: dict[str, Any] = {"count": self.rows, "threads": 2, "body_size": self._body_size}
        self._track.other.put(folder / "store", **work, random_bodies=True)

    def _fill(self, folder: Path) -> None:
        """Copy the messages of the store to Kafka through Parquet files, which are kept in ``bodies``."""
        reading = {"do": "read", "format": "rocketmq", "options": self._options[OURS]}
        self._sparks[OURS].ask(**reading, to="parquet", target=folder / "bodies", keep=True)
        writing = {"do": "write", "format": "kafka", "rows": folder / "bodies", "columns": ["body AS value"]}
        self._sparks[JAVA].ask(**writing, options=to_kafka(self.kafka, _TOPIC))

    def _broker(self, store: Path) -> list[str]:
        """The command for the real broker, after adding the topic to its tables."""
        (store / "config").mkdir(exist_ok=True)
        (store / "config" / "topics.json").write_text(json.dumps(_TOPICS))
        return self._track.other.cluster(store, {})

    def _require_all(self, side: str) -> None:
        counting = {"do": "read", "format": _FORMATS[side], "options": self._options[side], "to": "count"}
        found = self._sparks[side].ask(**counting)["rows"]
        if found != self.rows:  # a Kafka producer that retried may have written some twice
            raise RuntimeError(f"Spark finds {found} rows at {side}, not {self.rows}")


def to_kafka(address: str, topic: str) -> Mapping[str, str]:
    """Options of Kafka's sink: the producer's defaults, but with a longer timeout for a busy machine."""
    return {"kafka.bootstrap.servers": address, "topic": topic, "kafka.delivery.timeout.ms": str(_PATIENCE_MS)}


def _read(track: Track, body_size: int, to: str, *, is_live: bool) -> Race:
    stage, work = Stage(track, body_size, is_live=is_live), {"do": "read", "to": to}
    sides = {
        JAVA: lambda folder: stage.carry_out(JAVA, **work),
        OURS: lambda folder: stage.carry_out(OURS, **work),
    }
    origin, goal = ("broker", 1.0) if is_live else ("store", 5.0)
    row = Row(f"Spark reads a {origin} {body_size} B, to {to}", _RATE, "rows/s", goal, note=_THEIRS)
    return Race([row], sides, prepare=stage.prepare, standing=lambda folder: stage(folder, **work))


def _write(track: Track, body_size: int) -> Race:
    """Write the rows from Parquet: to a new topic of Kafka, and to a new store, which is durable at the end."""
    stage = Stage(track, body_size)
    turn = count()

    def theirs(folder: Path) -> dict[str, float]:
        options = to_kafka(stage.kafka, f"written-{next(turn)}")
        writing = {"do": "write", "rows": folder / "bodies", "columns": ["body AS value"]}
        return stage.carry_out(JAVA, **writing, options=options)

    def ours(folder: Path) -> dict[str, float]:
        store = folder / "written"
        columns = [f"'{_TOPIC}' AS topic", "body"]
        done = stage.carry_out(OURS, do="write", rows=folder / "bodies", columns=columns, options={"path": store})
        shutil.rmtree(store)
        return done

    @contextmanager
    def standing(folder: Path) -> Iterator[None]:
        with stage(folder):
            theirs(folder), ours(folder)
            yield

    note = f"{_THEIRS}; from Parquet, by its sink into Kafka, by ours exactly once into a store"
    row = Row(f"Spark writes {body_size} B", _RATE, "rows/s", note=note)
    return Race([row], {JAVA: theirs, OURS: ours}, prepare=stage.prepare, standing=standing)
