"""The real broker starts on a copy of an archive of its store, and its consumer reads everything that was archived."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from archive_cases import archive as archived
from archive_cases import copy_of, findings
from gantrymq.config.properties import read_settings
from golden_stores import NAMES, unpack

from .java import JavaStore
from .java_cluster import JavaCluster

pytestmark = pytest.mark.interop

FILE_BYTES = 1 << 20
SMALL = {"mappedFileSizeCommitLog": FILE_BYTES, "maxHashSlotNum": 1000, "maxIndexNum": 4000}


def archive(store: Path, place: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "gantrymq", "archive", str(store), str(place), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def stored(line: dict[str, Any]) -> tuple[Any, ...]:
    """What the store has of a message that was pulled; the client adds the ends of the queue to its properties."""
    return tuple(
        line[name] for name in ("queueId", "queueOffset", "phyOffset", "size", "uniqKey", "bodyLength", "bodySha256")
    )


@pytest.mark.slow
def test_real_broker_on_a_copy_has_what_was_archived_beside_it(tmp_path: Path) -> None:
    master, place, copy = tmp_path / "master", tmp_path / "archive", tmp_path / "copy"
    messages = [{"topic": "T", "body": "x" * 3000 + str(number), "keys": f"key-{number}"} for number in range(1000)]
    with JavaCluster(master, SMALL) as cluster:
        cluster.send(messages)
        first = archive(master, place)
        assert findings(copy_of(place, copy)) == []
        cluster.send([{**message, "topic": "Later"} for message in messages[:500]])
        second = archive(master, place)
        assert (first["minOffset"], first["maxOffset"] // FILE_BYTES) == (0, first["files"])
        assert second["files"] > first["files"] >= 2
        assert findings(copy_of(place, copy)) == []
        expected = {
            topic: [line for line in cluster.pull(topic) if line["phyOffset"] < second["maxOffset"]]
            for topic in ("T", "Later")
        }
    with JavaCluster(copy, SMALL) as cluster:
        for topic, lines in expected.items():
            pulled = cluster.pull(topic, len(lines))
            assert [stored(line) for line in pulled] == [stored(line) for line in lines]
        assert (len(expected["T"]), len(expected["Later"]) > 200) == (1000, True)
        cluster.send([{"topic": "T", "body": "next"}])
        assert len(cluster.pull("T")) == 1001
    assert findings(place) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_java_reads_of_an_archive_what_it_read_of_the_store(tmp_path: Path, name: str) -> None:
    golden, place = unpack(name, tmp_path), tmp_path / "archive"
    settings = json.loads((golden / "about.json").read_text("utf-8"))["config"]
    reading = read_settings({key: str(value) for key, value in settings.items()})
    summary = archived(golden / "store", place, None, reading.config, reading.given)
    full = golden / "expected-all.jsonl"
    text = (full if full.exists() else golden / "expected.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    expected = [line for line in lines if line["kind"] == "message" and line["phyOffset"] < summary.max_offset]
    dumped = JavaStore(copy_of(place, tmp_path / "copy"), settings).dump(halt=True)
    assert [line for line in dumped if line["kind"] == "message"] == expected
