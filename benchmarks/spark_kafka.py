"""The speed of Spark reading RocketMQ with this project, against Spark's Kafka connector at a real Kafka broker.

    python benchmarks/spark_kafka.py [--rows 2000000] [--body 100 1024] [--to noop parquet] [--repeats 5] [--plain]

The same bodies are in a store, in a real Kafka broker, and behind a real RocketMQ broker that runs over that store. Two
Sparks of two cores (Kafka's connector needs another version than ours) read topic and body of every message in turn:
store, Kafka, broker and the ceiling of our source, one after the other, so that other load on the machine affects all
alike. The results are ratios: the median over the rounds, for wall time and for CPU time.

With --plain each side is a plain ``load()``, without a schema and without a projection: the seven columns of Kafka's
connector, and the default columns of ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.race.kafka import KafkaBroker, fetch_broker, fetch_spark
from benchmarks.race.races.spark import to_kafka
from benchmarks.race.spark_driver import SparkDriver
from benchmarks.spark_read import body_batches, make_store

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 1
TOPIC = "benchmark"


@contextmanager
def rocketmq_broker(store: Path) -> Iterator[str]:
    """Run the real RocketMQ over a store. Yields the address of its name server."""
    sys.path.insert(0, str(ROOT / "tests"))
    from interop.java_cluster import JavaCluster

    topics = {
        f"benchmark-{number}": {"topicName": f"benchmark-{number}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for number in range(4)
    }
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    settings = {
        "mappedFileSizeCommitLog": 1 << 30,
        "mappedFileSizeConsumeQueue": 6_000_000,
        "maxHashSlotNum": 5_000_000,
        "maxIndexNum": 20_000_000,
        "storePathRootDir": str(store),
    }
    with JavaCluster(store, settings) as running:
        yield running.namesrv


def prepare(directory: Path, rows: int, body_bytes: int, kafka: SparkDriver, address: str) -> Path:
    """Put the same bodies into a store and into Kafka. Returns the directory of the store."""
    store, bodies = directory / f"{body_bytes}" / "store", directory / f"{body_bytes}.parquet"
    if not store.exists():
        make_store(store, rows, body_bytes)
    if not bodies.exists():
        with pq.ParquetWriter(bodies, pa.schema([("body", pa.binary())]), compression="none") as writer:
            for _, batch in body_batches(rows, body_bytes):
                writer.write_table(pa.table({"body": batch}))
    print("  into Kafka …", file=sys.stderr)
    options = to_kafka(address, f"{TOPIC}-{body_bytes}")
    kafka.ask(do="write", format="kafka", rows=bodies, columns=["body AS value"], options=options)
    return store


def order(source: str, options: dict[str, str], *, plain: bool) -> dict[str, Any]:
    more = {"register": "spark_read:CeilingSource"} if source == "ceiling" else {}
    return {"do": "read", "format": source, "options": options, "plain": plain, **more}


def race(
    sides: dict[str, tuple[SparkDriver, str, dict[str, str]]],
    to: str,
    rows: int,
    repeats: int,
    target: Path,
    *,
    plain: bool,
) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(WARM_UP + repeats):
        for name, (spark, source, options) in sides.items():
            cost = spark.ask(**order(source, options, plain=plain), to=to, target=target)
            if number >= WARM_UP:
                found[name].append(cost)
    for name, costs in found.items():
        best, median = (figure(cost["wall_s"] for cost in costs) for figure in (min, statistics.median))
        cores = statistics.median(cost["cpu_s"] for cost in costs)
        speed = f"{rows / best / 1e6:6.2f} M rows/s at best, {rows / median / 1e6:6.2f} in the median"
        figures = f"{speed}, {cores / rows * 1e9:6.0f} ns of a core a row"
        print(f"  {name:>8} to {to:>7}: {figures}", flush=True)
    return found


def ratios(found: dict[str, list[dict[str, float]]], fast: str, slow: str, figure: str) -> str:
    """How many times less ``fast`` costs than ``slow``: the median, and the least and the most of a round."""
    pairs = zip(found[fast], found[slow], strict=True)
    each = [other[figure] / one[figure] for one, other in pairs]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--body", type=int, nargs="+", default=[100, 1024], help="bytes of a body")
    parser.add_argument("--to", nargs="+", choices=("noop", "parquet"), default=["noop", "parquet"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="read without a schema, as a plain load() does")
    parser.add_argument("--json", type=Path, help="write every figure there")
    given = parser.parse_args()
    jars, (connector, python) = fetch_broker(), fetch_spark()
    results: dict[str, Any] = {"rows": given.rows, "repeats": given.repeats, "time": time.strftime("%F")}
    with tempfile.TemporaryDirectory(prefix="spark-kafka-") as name:
        directory = Path(name)
        with (
            KafkaBroker(jars, directory / "kafka") as broker,
            SparkDriver(python, connector, directory / "theirs") as theirs,
            SparkDriver(sys.executable, None, directory / "ours", Path(__file__).parent) as ours,
        ):
            for body_bytes in given.body:
                print(f"{body_bytes} bytes", flush=True)
                store = prepare(directory, given.rows, body_bytes, theirs, broker.address)
                with rocketmq_broker(store) as namesrv:
                    subscribed = {"kafka.bootstrap.servers": broker.address, "subscribe": f"{TOPIC}-{body_bytes}"}
                    pattern = {"subscribePattern": "benchmark-[0-3]"}
                    sides = {
                        "store": (ours, "rocketmq", {"path": str(store)}),
                        "kafka": (theirs, "kafka", subscribed),
                        "broker": (ours, "rocketmq", {"nameserver": namesrv, **pattern}),
                        "ceiling": (ours, "ceiling", {"path": str(store), "rows": str(given.rows)}),
                    }
                    for side, (spark, source, options) in sides.items():
                        counted = spark.ask(**order(source, options, plain=given.plain), to="count")["rows"]
                        if counted != given.rows:
                            raise RuntimeError(f"{side} has {counted} rows, not {given.rows}")
                    for to in given.to:
                        target = directory / "target"
                        found = race(sides, to, given.rows, given.repeats, target, plain=given.plain)
                        for fast, slow in (("store", "kafka"), ("broker", "kafka"), ("store", "ceiling")):
                            clock, cores = (ratios(found, fast, slow, figure) for figure in ("wall_s", "cpu_s"))
                            print(f"  {fast}/{slow}: {clock} by the clock, {cores} by cores", flush=True)
                        results[f"{body_bytes} {to}"] = found
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
