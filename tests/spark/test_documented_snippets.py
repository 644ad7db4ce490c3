"""The first snippets of docs/spark.md and the Spark snippet of README.md, run with the paths of a test's stores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gantrymq import StoreReader
from store_cases import numbered, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLUSTER_ONLY = '"nameserver"'  # covered against real brokers by tests/interop


def snippets(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language ("" for a shell's)."""
    return [text for name, text in FENCE.findall((ROOT / page).read_text()) if name == language]


def bodies(path: Path) -> list[bytes]:
    with StoreReader.open(path) as reader:
        return sorted(message.body for message in reader.messages())


def test_snippets_of_spark_page_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, ingest = snippets("docs/spark.md", "bash")[0].split("\n", 1)
    command = ingest.replace("gantrymq ", f"{sys.executable} -m gantrymq ", 1)
    subprocess.run(["/bin/sh", "-ec", command], cwd=tmp_path, check=True, timeout=60)
    here = [text for text in snippets("docs/spark.md", "python") if CLUSTER_ONLY not in text]
    assert len(here) == 3
    # Paths of the page are relative. The JVM of the shared session keeps the directory that it was started in.
    here = [re.sub(r'"(broker-a|checkpoint|copy)"', lambda name: repr(str(tmp_path / name[1])), text) for text in here]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the snippet sets it too: it is undone with this test
    names: dict[str, Any] = {}
    for text in here:
        exec(compile(text, "docs/spark.md", "exec"), names)
    rows = names["orders"].collect()
    assert [(row.queue_offset, row.tags, row.body) for row in rows if row.body == b"first"] == [(0, "paid", b"first")]
    assert len(rows) == 2
    keys = {row[0] for row in names["found"].collect()}
    assert keys == {"4711", None}
    assert {tuple(row)[1:] for row in names["found"].collect()} == {(None, None)}
    assert names["invoice"].count() == 0
    with pytest.raises(Exception, match="INVALID_ARRAY_INDEX"):
        names["messages"].selectExpr("keys[0]").collect()
    assert bodies(tmp_path / "copy") == [b"first", b"second"]
    assert names["offsets_behind"](names["query"].lastProgress["sources"][0])["offsetsBehindLatest"] == 0


def test_snippet_of_readme_runs(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(path=tmp_path / "store") as store:
        store.put_batch(numbered(10))
    (text,) = (text for text in snippets("README.md", "python") if "spark.read" in text)
    assert '"/data/store"' in text
    rows = eval(text.strip().replace("/data/store", str(tmp_path / "store")), {"spark": spark}).collect()
    assert sorted(bytes(row.body) for row in rows) == bodies(tmp_path / "store")
