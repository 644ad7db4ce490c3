"""`gantrymq table` as a program calls it: JSON lines, exit codes, signals, a live cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gantrymq import AdminClient, EmbeddedBroker, Message, Producer
from gantrymq.cli.main import exit_code
from gantrymq.fs.real import RealFileSystem
from gantrymq.tables.local.target import TableFormat
from golden_stores import unpack
from store_cases import await_dispatch, numbered, open_store
from tables.landing_cases import FORMATS, Lake

COMMAND = (sys.executable, "-m", "gantrymq", "table")


@dataclass(frozen=True)
class Done:
    code: int
    lines: list[dict[str, Any]]
    err: str


@pytest.fixture
def table(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """``gantrymq table`` in this process."""

    def run(*arguments: object) -> Done:
        code = exit_code(["table", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return Done(code, [json.loads(line) for line in out.splitlines()], err.decode())

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "broker-a" / "store"
    path.mkdir(parents=True)
    with open_store(RealFileSystem(), path) as writer:
        for message in numbered(40):
            writer.put(message)
        await_dispatch(writer)
    return path


@pytest.mark.parametrize("kind", FORMATS)
def test_land_prints_commits_and_summary(kind: TableFormat, tmp_path: Path, store: Path, table: Any) -> None:
    lake = Lake(tmp_path / "lake", kind)
    done = table("land", store, *lake.arguments, "--topic", "orders", "--json", "--commit-rows", 30)
    assert (done.code, done.err) == (0, "")
    first, second, summary = done.lines
    assert list(first) == ["kind", "version", "rows", "dead", "missing", "positions", "lag"]
    assert (first["kind"], first["rows"], first["lag"]["messages"]) == ("commit", 30, 10)
    assert list(first["lag"]) == ["messages", "bytes", "seconds"]
    assert (second["rows"], second["positions"]) == (10, {"broker-a": {"orders": {"0": 40}}})
    assert second["version"] > first["version"]
    positions = {"broker-a": {"orders": {"0": 40}}}
    assert summary == {"kind": "summary", "rows": 40, "dead": 0, "missing": 0, "positions": positions, "commits": 2}
    again = table("land", store, *lake.arguments, "--json")
    assert again.lines == [{**summary, "rows": 0, "commits": 0}]
    in_catalog = ["--warehouse", tmp_path / "lake" / "lake"] if kind is TableFormat.ICEBERG else []
    *commits, status = table("status", lake.table, *in_catalog, "--json").lines
    assert [list(commit) for commit in commits] == [["kind", "landing", "timestamp", "rows", "dead", "missing"]] * 2
    assert [(commit["landing"], commit["rows"]) for commit in commits] == [(2, 30), (3, 10)]
    assert commits[0]["timestamp"] <= commits[1]["timestamp"]
    assert list(status) == ["kind", "rows", "dead", "missing", "version", "positions", "lag", "files"]
    assert (status["rows"], status["positions"], status["files"]) == (40, positions, 2)
    assert status["lag"] == {"messages": 0, "bytes": 0, "seconds": 0.0}


def test_status_for_people_shows_last_ten_commits(
    tmp_path: Path, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    assert exit_code(["table", "land", str(store), *lake.arguments, "--topic", "orders", "--commit-rows", "3"]) == 0
    capfd.readouterr()
    assert exit_code(["table", "status", lake.table]) == 0
    lines = capfd.readouterr().out.splitlines()
    heading = next(number for number, text in enumerate(lines) if "landing" in text)
    rows = [text.split() for text in lines[heading + 1 :] if text.strip()[:1].isdigit()]
    assert [int(row[0]) for row in rows] == list(range(6, 16))
    assert [row[-3:] for row in rows] == [["3", "0", "0"]] * 9 + [["1", "0", "0"]]


def test_missing_messages_end_with_1_and_foreign_table_with_3(tmp_path: Path, table: Any) -> None:
    folder = unpack("bad-crc", tmp_path)
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    done = table("land", folder / "store", *lake.arguments, "--topic", "orders", "--json")
    assert (done.code, done.lines[-1]["missing"]) == (1, 1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "rows.csv").write_text("a")
    done = table("land", folder / "store", other, "--topic", "orders")
    assert done.code == 3
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"gantrymq: {other}: ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["STORE"], "SOURCE and a TABLE"),
        (["STORE", "TABLE"], "--topic"),
        (["STORE", "TABLE", "--topics", "("], "regular expression"),
        (["STORE", "TABLE", "--topic", "orders", "--once", "--every", "5s"], "exclude"),
        (["STORE", "TABLE", "--topic", "orders", "--every", "soon"], "span of time"),
        (["STORE", "TABLE", "--topic", "orders", "--every", "99999999d"], "span of time"),
        (["STORE", "TABLE", "--topic", "orders", "--message", "Order"], "--body protobuf"),
        (["STORE", "TABLE", "--topic", "orders", "--format", "iceberg"], "--warehouse"),
        (["STORE", "TABLE", "--topic", "orders", "--body", "json"], "--schema"),
        (["STORE", "TABLE", "--topic", "orders", "--commit-rows", "0"], "whole number"),
    ],
)
def test_wrong_call_is_refused_with_2(arguments: list[str], text: str, tmp_path: Path, store: Path, table: Any) -> None:
    places = {"STORE": str(store), "TABLE": str(tmp_path / "table")}
    done = table("land", *(places.get(word, word) for word in arguments))
    assert done.code == 2
    assert text in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [("deltalake", "delta", []), ("pyiceberg", "iceberg", ["--warehouse", "DIR"])],
)
def test_missing_extra_is_one_line(module: str, extra: str, arguments: list[str], tmp_path: Path, store: Path) -> None:
    without = f"import sys; sys.modules[{module!r}] = None; from gantrymq.cli import run; run()"
    command = ["table", "land", str(store), str(tmp_path / "t"), "--topic", "orders", *arguments]
    done = subprocess.run([sys.executable, "-c", without, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert f"pip install 'gantrymq[{extra}]'" in done.stderr


def test_topic_in_name_makes_table_for_each_topic(tmp_path: Path, store: Path, table: Any) -> None:
    with open_store(RealFileSystem(), store) as writer:
        for message in numbered(7, topic="payments"):
            writer.put(message)
        await_dispatch(writer)
    done = table("land", store, tmp_path / "{topic}", "--topics", ".*", "--format", "parquet", "--json")
    assert done.lines[-1]["rows"] == 47
    assert done.lines[-1]["positions"] == {"broker-a": {"orders": {"0": 40}, "payments": {"0": 7}}}
    assert len(list((tmp_path / "payments").rglob("*.parquet"))) == 1


def test_land_with_every_lands_new_messages_and_ends_at_sigterm_with_0(tmp_path: Path, store: Path) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    arguments = ["land", str(store), *lake.arguments, "--topic", "orders", "--every", "300ms", "--json"]
    command = [*COMMAND, *arguments]
    with (
        open_store(RealFileSystem(), store) as writer,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["rows"] == 40
        for message in numbered(5):
            writer.put(message)
        await_dispatch(writer)
        assert json.loads(process.stdout.readline())["rows"] == 5
        process.send_signal(signal.SIGTERM)
        last = json.loads(process.stdout.read().splitlines()[-1])
        assert process.wait(30) == 0
    assert (last["kind"], last["rows"], last["commits"]) == ("summary", 45, 2)
    assert len(lake.messages()) == 45


@pytest.mark.parametrize("kind", FORMATS)
def test_land_with_maintenance_prints_what_was_done(kind: TableFormat, tmp_path: Path, store: Path, table: Any) -> None:
    lake = Lake(tmp_path / "lake", kind)
    arguments = ["land", store, *lake.arguments, "--topic", "orders", "--json"]
    table(*arguments, "--commit-rows", 10)
    done = table(*arguments, "--compact", "--ttl", "365d", "--expire", "12h")
    assert (done.code, done.err) == (0, "")
    maintenance, summary = done.lines
    assert list(maintenance) == ["kind", "compacted", "into", "expired_rows", "removed_files", "freed_bytes"]
    assert list(maintenance.values())[:4] == ["maintenance", 4, 1, 0]
    assert (summary["kind"], summary["rows"], summary["commits"]) == ("summary", 0, 0)
    assert table(*arguments, "--ttl", "1ms").lines[0]["expired_rows"] == 40
    in_catalog = ["--warehouse", tmp_path / "lake" / "lake"] if kind is TableFormat.ICEBERG else []
    status = table("status", lake.table, *in_catalog, "--json").lines[-1]
    assert (status["rows"], status["positions"]) == (0, {"broker-a": {"orders": {"0": 40}}})
    ended = table(*arguments, "--ttl", "none", "--expire", "none").lines
    assert [line["kind"] for line in ended] == ["maintenance", "summary"]
    assert [line["kind"] for line in table(*arguments).lines] == ["summary"]


def test_invalid_span_is_refused_in_one_line(tmp_path: Path, store: Path, table: Any) -> None:
    done = table("land", store, tmp_path / "table", "--topic", "orders", "--ttl", "soon")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "not a span of time" in done.err


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_recreated_topic_of_cluster_begins_generation(tmp_path: Path, broker: EmbeddedBroker, table: Any) -> None:
    lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
    arguments = [f"namesrv://{broker.namesrv}", *lake.arguments, "--topic", "fruit", "--json", "--commit-rows", 16]
    with Producer(broker.namesrv) as producer, AdminClient(broker.namesrv) as admin:
        for number in range(40):
            producer.send(Message("fruit", b"apple %d" % number, keys=[f"k{number}"], tags="red"))
        done = table("land", *arguments)
        assert (done.code, done.err) == (0, "")
        assert [line["rows"] for line in done.lines] == [16, 16, 8, 40]
        assert [line["lag"]["messages"] for line in done.lines[:-1]] == [24, 8, 0]
        rows = lake.rows()
        assert {bytes(row["body"]) for row in rows} == {b"apple %d" % number for number in range(40)}
        assert all(row["tags"] == "red" and row["generation"] == 0 for row in rows)
        assert len(set(lake.messages())) == 40
        assert table("land", *arguments).lines[-1]["commits"] == 0
        admin.delete_topic("fruit")
        deadline = time.monotonic() + 30
        while True:  # the route of a deleted topic is known for a while
            try:
                producer.send(Message("fruit", b"pear"))
                break
            except Exception:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        done = table("land", *arguments)
    assert done.lines[-1]["missing"] == 0
    assert [bytes(row["body"]) for row in lake.rows() if row["generation"] == 1] == [b"pear"]
    assert len(set(lake.messages())) == len(lake.messages()) == 41
