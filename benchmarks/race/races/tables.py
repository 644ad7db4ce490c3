"""Landings in a Delta table: `gantrymq table land` against Spark's Kafka connector with Delta for Spark.

Both sides have the same bodies, and write whole rows: ours the columns of `table land`, theirs those of the connector.
Only ours syncs its files, so the disk is idle when a side begins.
The local engine is a new process each time; both Sparks are warm. The Kafka broker and the stages are those of
:mod:`benchmarks.race.races.spark`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import orjson
import pyarrow.dataset as ds

from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.races.spark import Stage
from benchmarks.race.track import Track
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore

_TOPIC = "bench"
_RATE, _LANDED = "rowsPerSecond", "rows"
_SIZES_BYTES = (100, 1024)
_JSON_SIZE_BYTES = 256
_DDL = (
    "id bigint, customer string, town string, street string, amount double, tax double, items int, is_paid boolean, "
    "created timestamp, note string"
)
_THEIRS = "theirs is Spark's Kafka connector into Delta"

Land = Callable[["LandingStage", Path], float]


class LandingStage(Stage):
    """A stage whose sides land in a table. ``typed`` is the DDL of its JSON bodies, or empty for random bytes."""

    def __init__(self, track: Track, body_size: int, typed: str = "") -> None:
        super().__init__(track, body_size)
        self.typed = typed

    def prepare(self, folder: Path) -> None:
        """Write the store: with the real RocketMQ, or with JSON bodies with ours."""
        if not self.typed:
            super().prepare(folder)
            return
        random.seed(1)
        with MessageStore.open(folder / "store") as store:
            for first in range(0, self.rows, 1000):
                store.put_batch(
                    [Message(_TOPIC, body=_order(number)) for number in range(first, min(first + 1000, self.rows))]
                )

    def theirs(self, folder: Path) -> dict[str, float]:
        """Kafka's connector into Delta."""
        table = _fresh(folder / "theirs-table")
        os.sync()
        columns = {"typed": self.typed} if self.typed else {"plain": True}
        done = self.carry_out(JAVA, do="read", to="delta", target=table, **columns)
        return {**done, _LANDED: _rows(table)}

    def ours(self, folder: Path, land: Land) -> dict[str, float]:
        """A landing of ours."""
        table = _fresh(folder / "our-table")
        os.sync()
        took_s = land(self, folder)
        return {_RATE: self.rows / took_s, _LANDED: _rows(table)}

    def options(self, folder: Path) -> dict[str, str]:
        """The schema of the bodies, as options of a landing."""
        if not self.typed:
            return {}
        schema = folder / "orders.ddl"
        schema.write_text(self.typed)
        return {"body": "json", "schema": str(schema)}


def races(track: Track) -> Iterator[Race]:
    """Both engines with bodies of each size, and typed JSON; none if Java, Maven or a library is missing."""
    if track.java is None or shutil.which("mvn") is None or not all(map(find_spec, ("pyspark", "deltalake"))):
        return
    for body_size in _SIZES_BYTES:
        yield _race(LandingStage(track, body_size), f"table land {body_size} B, local", _by_command, 3.0)
        yield _race(LandingStage(track, body_size), f"table land {body_size} B, Spark", _by_spark, 1.5)
    yield _race(LandingStage(track, _JSON_SIZE_BYTES, _DDL), "table land JSON of 10 fields, local", _by_command, 2.0)
    yield _race(LandingStage(track, _JSON_SIZE_BYTES, _DDL), "table land JSON of 10 fields, Spark", _by_spark, 2.0)


def _race(stage: LandingStage, name: str, land: Land, goal: float) -> Race:
    sides: Mapping[str, Callable[[Path], Mapping[str, float]]] = {
        JAVA: stage.theirs,
        OURS: lambda folder: stage.ours(folder, land),
    }
    row = Row(name, _RATE, "rows/s", goal, note=_THEIRS)
    return Race([row], sides, agree=[_LANDED], prepare=stage.prepare, standing=stage)


def _by_command(stage: LandingStage, folder: Path) -> float:
    """The whole process, from its start. Returns its seconds."""
    words = [sys.executable, "-m", "gantrymq", "table", "land", str(folder / "store"), str(folder / "our-table")]
    options = [word for name, value in stage.options(folder).items() for word in (f"--{name}", value)]
    began_s = time.perf_counter()
    subprocess.run([*words, "--topic", _TOPIC, *options], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def _by_spark(stage: LandingStage, folder: Path) -> float:
    """A landing by a warm Spark. Returns its seconds."""
    arguments = {"source": str(folder / "store"), "table": str(folder / "our-table"), "topic": _TOPIC}
    arguments |= stage.options(folder)
    return float(stage.sparks[OURS].ask(do="land", arguments=arguments)["wall_s"])


def _order(number: int) -> bytes:
    return orjson.dumps(
        {
            "id": number,
            "customer": f"customer-{number % 5000}",
            "town": random.choice(("Berlin", "Lyon", "Porto")),
            "street": f"Street {number % 977}",
            "amount": round(random.uniform(5, 200), 2),
            "tax": round(random.uniform(1, 20), 2),
            "items": number % 17,
            "is_paid": number % 3 == 0,
            "created": f"2026-11-{1 + number % 28:02d}T12:00:{number % 60:02d}Z",
            "note": "x" * 40,
        }
    )


def _fresh(table: Path) -> Path:
    shutil.rmtree(table, ignore_errors=True)
    return table


def _rows(table: Path) -> int:
    from deltalake import DeltaTable

    return sum(int(fragment.count_rows()) for fragment in ds.dataset(DeltaTable(table).file_uris()).get_fragments())
