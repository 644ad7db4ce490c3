"""The examples do what their words say: run, killed, run again, and compared with the input."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from demo.flights import COLUMNS
from gantrymq import StoreReader
from store_cases import numbered, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LINE = "2013,3,{day},{dep},{dep},{delay},NA,NA,NA,UA,{flight},N1,{origin},IAH,NA,100,{hour},{minute},{at}"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def places(spark: SparkSession, table: Path) -> list[tuple[str, int]]:
    rows = spark.read.parquet(str(table)).select("topic", "queue_offset").collect()
    return sorted((row.topic, row.queue_offset) for row in rows)


def wanted(path: Path) -> list[tuple[str, int]]:
    with StoreReader.open(path) as reader:
        return sorted((message.topic, message.queue_offset) for message in reader.messages())


@pytest.mark.slow
def test_continuous_dispatch_writes_every_message_once(spark: SparkSession, tmp_path: Path) -> None:
    source, table = tmp_path / "broker-a", tmp_path / "table"
    dispatching = example("continuous_dispatch")
    for first in (0, 60):
        with open_store(path=source) as store:
            store.put_batch(numbered(60, first=first) + numbered(20, topic="payments", queue_id=1))
        stream = dispatching.messages(spark, str(source), None, 1000)
        query = dispatching.dispatch(stream, str(table), "parquet", once=True, interval="")
        assert query.awaitTermination(120)
        assert query.exception() is None
    assert places(spark, table) == wanted(source)
    assert {path.name for path in table.glob("topic=*")} == {"topic=orders", "topic=payments"}
    assert all(path.name.startswith("day=20") for path in table.glob("topic=*/*"))


@pytest.mark.slow
def test_continuous_dispatch_continues_after_kill(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    """The program itself, killed with SIGKILL in the middle; then its functions in this Spark, to the end."""
    source, table = tmp_path / "broker-a", tmp_path / "table"
    with open_store(path=source) as store:
        store.put_batch(numbered(3000) + numbered(500, topic="payments", queue_id=1))
    program = [sys.executable, str(EXAMPLES / "continuous_dispatch.py"), str(source), str(table), "--per-batch", "200"]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        [*program, "--interval", "0 seconds"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=environment, start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        try:
            line = next(line for line in running.stdout if line.startswith("batch 1:"))
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    assert "200 messages" in line
    dispatching = example("continuous_dispatch")
    with open_store(path=source) as store:
        store.put_batch(numbered(100, first=3000))
    for per_batch in (1000, 10_000):
        stream = dispatching.messages(spark, str(source), None, per_batch)
        query = dispatching.dispatch(stream, str(table), "parquet", once=True, interval="")
        assert query.awaitTermination(120)
        assert query.exception() is None
    assert places(spark, table) == wanted(source)


def flights_file(path: Path, rng: random.Random, days: int) -> list[tuple[str, str, int]]:
    """A file as the data set has it, and (origin, hour, flight number) of each row."""
    lines, found = [",".join(COLUMNS)], []
    for number in range(days * 60):
        day, hour, minute = 1 + number // 60, rng.randrange(6, 22), rng.randrange(60)
        origin, at = rng.choice(["EWR", "JFK", "LGA"]), f"2013-03-{1 + number // 60:02d}T{hour:02d}:00:00Z"
        lines.append(LINE.format(day=day, dep=hour * 100 + minute, delay=number % 7, flight=number, origin=origin,
                                 hour=hour, minute=minute, at=at))  # fmt: skip
        found.append((origin, at, number))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join(lines) + "\n")
    return found


@pytest.mark.slow
def test_example_flights_with_weather_joins_streams(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    """Each flight once, with the weather of its own hour and airport, in several batches and two runs."""
    joining = example("flights_with_weather")
    flights = flights_file(tmp_path / "flights.csv.zip", rng, days=6)
    header = "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour"
    temperatures = {
        (origin, f"2013-03-{day:02d}T{hour:02d}:00:00Z"): float(day * 100 + hour)
        for origin in ("EWR", "JFK", "LGA") for day in range(1, 7) for hour in range(24)
        if (origin, day, hour) != ("JFK", 2, 12)
    }  # fmt: skip
    lines = [f"{origin},2013,3,1,0,{temp},1,1,1,5,NA,0,NA,10,{at}" for (origin, at), temp in temperatures.items()]
    (tmp_path / "weather.csv").write_text("\n".join([header, *lines]) + "\n")
    joining.feed(tmp_path / "broker-a", tmp_path / "flights.csv.zip", tmp_path / "weather.csv")
    for _ in range(2):
        query = joining.follow(joining.joined(spark, str(tmp_path / "broker-a"), 300), str(tmp_path / "out"), once=True)
        assert query.awaitTermination(240)
        assert query.exception() is None
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    found = sorted((row.flight, row.origin, row.temp) for row in rows)
    assert found == sorted(
        (number, origin, temperatures[origin, at]) for origin, at, number in flights if (origin, at) in temperatures
    )
