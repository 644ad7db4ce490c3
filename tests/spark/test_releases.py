"""Older releases of PySpark: what works, what is refused by name, and that the format never takes others down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gantrymq import Message
from store_cases import open_store

DRIVER = Path(__file__).with_name("release_driver.py")
STARTS = DRIVER.with_name("start_driver.py")
OLD_SPARK = Path(__file__).parents[2] / ".cache" / "old-spark"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(path=tmp_path / "broker-a") as store:
        for number in range(100):
            store.put(Message("orders", b"%d" % number, tags="paid" if number % 2 else "due", keys=[f"k{number}"]))
    return tmp_path / "broker-a"


def outcomes(store: Path, room: Path, packages: Path | None, driver: Path = DRIVER) -> dict[str, Any]:
    """What the driver says with the PySpark in ``packages``, or without them with that of this environment."""
    python_path = [str(packages)] if packages else []
    if before := os.environ.get("PYTHONPATH"):
        python_path.append(before)
    room.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(python_path), "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, str(driver), str(store), str(room)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


ALL = {
    "batch": 100,
    "columns": 1,
    "filter": 50,
    "write": 100,
    "land": 100,
    "stream": 100,
    "limit": 100,
    "stream into a store": 100,
}


@pytest.mark.slow
def test_older_pyspark_release_reads_and_writes(store: Path, tmp_path: Path) -> None:
    """`make test-slow` installs it."""
    found = outcomes(store, tmp_path / "room", OLD_SPARK)
    version = found.pop("version")
    assert version == "4.1.4"
    needed = f"the option maxOffsetsPerTrigger of a stream needs PySpark 4.2 or newer; this is {version}"
    assert found == {**ALL, "limit": needed}


@pytest.mark.slow
def test_installed_pyspark_release_reads_and_writes(store: Path, tmp_path: Path) -> None:
    found = outcomes(store, tmp_path / "room", None)
    assert found.pop("version").startswith("4.3.")
    assert found == ALL


@pytest.mark.slow
@pytest.mark.parametrize("packages", [OLD_SPARK, None], ids=["older", "this"])
def test_messages_between_first_calls_of_stream_are_read_once(tmp_path: Path, packages: Path | None) -> None:
    """Two runs die inside their first batch, which the third repeats."""
    (tmp_path / "stores").mkdir()
    found = outcomes(tmp_path / "stores", tmp_path / "room", packages, STARTS)
    end_first = found.pop("version") < "4.2"
    for name, case in found.items():
        assert case["calls"][0] == (
            "prepareForTriggerAvailableNow"
            if not end_first and name == "available now"
            else "latestOffset"
            if end_first
            else "initialOffset"
        )
        died, again, third, fourth = case["runs"]
        assert len(died) == 1
        assert died == again == third[:1]
        # A run may be stopped before its last batch is committed, which the next run then repeats.
        whole = third[:-1] if third[-1] == fourth[0] else third
        read = [number for batch in (*whole, *fourth) for number in batch]
        begin = 0 if name == "earliest" else 10
        assert read == list(range(begin, begin + len(read)))
        assert len(read) > 1
        if end_first and name == "latest":
            assert died == [[]]


HIDE = """
import sys
import pyspark.sql.datasource as api
import pyspark.sql.pandas.types as types

new = types.to_arrow_schema
types.to_arrow_schema = lambda schema, prefers_large_types=False: new(schema, timezone="UTC")
sys.modules["pyspark.sql.streaming.datasource"] = None
for name in ["ReadAllAvailable", "ReadLimit", *{names}]:
    delattr(api, name)
from pyspark_rocketmq import DefaultSource
"""
SINCE_4_1 = ("DataSourceStreamArrowWriter", "EqualNullSafe", "EqualTo", "Filter", "GreaterThan", "In", "LessThan")
SINCE_4_1 += ("GreaterThanOrEqual", "LessThanOrEqual", "IsNull", "IsNotNull", "Not")


def run(code: str) -> str:
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    return said.stdout


@pytest.mark.parametrize("names", [(), SINCE_4_1], ids=["4.1", "4.0"])
def test_spark_api_without_newer_names_reads_same_rows(store: Path, names: tuple[str, ...]) -> None:
    """Spark's own part is left out: the names that are not there, and what is called in their place."""
    code = (
        HIDE.format(names=names)
        + f"""
import json
from pyspark.sql.types import BinaryType, StructField, StructType
schema = StructType([StructField("body", BinaryType())])
source = DefaultSource({{"path": {str(store)!r}}})
reader = source.reader(schema)
print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))
stream = DefaultSource({{"path": {str(store)!r}, "startingOffsets": "earliest"}}).streamReader(schema)
start, end = stream.initialOffset(), stream.latestOffset()
assert end == stream.latestOffset(), "a trigger without anything new"
print(sum(batch.num_rows for part in stream.partitions(start, end) for batch in stream.read(part)))
limited = DefaultSource({{"path": {str(store)!r}, "maxOffsetsPerTrigger": "5"}}).streamReader(schema)
try:
    limited.initialOffset()
except Exception as error:
    print(error)
try:
    DefaultSource({{"path": {str(store)!r}, "topic": "orders"}}).streamWriter(schema, False)
except Exception as error:
    print(error)
"""
    )
    lines = run(code).splitlines()
    assert lines[:2] == ["100", "100"]
    assert lines[2].startswith("the option maxOffsetsPerTrigger of a stream needs PySpark 4.2 or newer; this is")
    assert [line.partition(";")[0] for line in lines[3:]] == (
        ["writing a stream needs PySpark 4.1 or newer"] if names else []
    )


def test_stream_of_older_release_skips_no_recreated_queue(store: Path) -> None:
    """It is asked for an end without being told the start, so that a reset can only be an error."""
    code = (
        HIDE.format(names=())
        + f"""
from pyspark.sql.types import BinaryType, StructField, StructType
schema = StructType([StructField("body", BinaryType())])
given = {{"path": {str(store)!r}, "startingOffsets": "earliest", "failOnDataLoss": "false"}}
stream = DefaultSource(given).streamReader(schema)
end = stream.latestOffset()
try:
    stream.partitions({{"orders": {{"broker-a": {{"0": 140}}}}}}, end)
except Exception as error:
    print(error)
"""
    )
    assert "offset 140 was expected, but the queue ends at 100" in run(code)


@pytest.mark.parametrize(
    "harm", ['sys.modules["pyarrow"] = None', 'sys.modules["gantrymq.spark.source"] = None', "del api.DataSourceWriter"]
)
def test_use_of_format_without_requirement_names_it(harm: str) -> None:
    """Spark imports every module of such a name, and one that raises takes all Python data sources down."""
    code = f"""
import sys
import pyspark.sql.datasource as api
{harm}
from pyspark_rocketmq import DefaultSource
from pyspark import cloudpickle
assert issubclass(DefaultSource, api.DataSource) and DefaultSource.name() == "rocketmq"
cloudpickle.dumps(DefaultSource)
try:
    DefaultSource({{}}).schema()
except Exception as error:
    print(type(error).__name__, error)
"""
    [line] = run(code).splitlines()
    assert line.startswith(("ImportError", "ConfigError"))


NO_SOURCES = {
    "no such module": "",
    "a module without the class": "(package / 'sql' / 'datasource.py').write_text('')",
    "an attribute is missing": "(package / 'sql' / 'datasource.py').write_text('raise AttributeError(1)')",
    "another error": "(package / 'sql' / 'datasource.py').write_text('1 / 0')",
    "an exit": "(package / 'sql' / 'datasource.py').write_text('raise SystemExit(3)')",
}


@pytest.mark.parametrize("content", NO_SOURCES.values(), ids=NO_SOURCES)
def test_use_of_format_with_old_pyspark_names_requirement(content: str, tmp_path: Path) -> None:
    """PySpark 3.5 has none; what else stands in for pyspark there must not matter."""
    code = f"""
import sys
from pathlib import Path
package = Path({str(tmp_path)!r}) / "pyspark"
(package / "sql").mkdir(parents=True)
(package / "__init__.py").write_text("__version__ = '3.5.8'")
(package / "sql" / "__init__.py").touch()
{content}
sys.path.insert(0, {str(tmp_path)!r})
from pyspark_rocketmq import DefaultSource
assert DefaultSource.name() == "rocketmq"
try:
    DefaultSource({{}})
except ImportError as error:
    print(error)
"""
    assert run(code).startswith('format("rocketmq") cannot be loaded: ')


def test_import_of_format_without_pyspark_succeeds() -> None:
    code = """
import sys
sys.modules["pyspark"] = None
from pyspark_rocketmq import DefaultSource
print(DefaultSource.name())
"""
    assert run(code) == "rocketmq\n"
