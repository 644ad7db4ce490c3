"""The jobs on Spark give what their local engines give, byte by byte, whatever the state of the store."""

from __future__ import annotations

import errno
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_cases import DAMAGES, LOG_FILE, copies, files, filled, holes_in_the_log, log_file, no_queues, write
from pyarrow.parquet import ParquetFile

from gantrymq.cli.main import exit_code
from gantrymq.errors import DiskError, DiskFullError, StoreError
from gantrymq.format.record import MAGIC_V1, MAGIC_V2, QUEUE_OFFSET_AT
from gantrymq.model.message import Message
from gantrymq.spark.pipelines import (
    export,
    export_on_spark,
    jobs,
    rebuild,
    rebuild_on_spark,
    salvage_on_spark,
    verify_on_spark,
)
from gantrymq.spark.pipelines.rebuild import EntryStage
from gantrymq.store.message_store import MessageStore
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.export_plan import ExportSelection
from gantrymq.tools.findings import Finding
from gantrymq.tools.rebuild import RebuildReport, rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from golden_stores import unpack
from store_cases import GEOMETRY_KEYS, SMALL, SMALL_KEYS, TOPICS, await_dispatch, store_of_strays

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUTURE_MS = 1 << 42
SLOW = pytest.mark.slow
BROKEN = ("zeros", "holes_in_the_log")
EVERYTHING = [name for name in DAMAGES if name != "no_queues"]


@pytest.fixture(autouse=True)
def several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stores are worth tasks of their own, too."""
    monkeypatch.setattr(jobs, "TASK_BYTES", 20 * LOG_FILE)


def without_times(report: RebuildReport) -> RebuildReport:
    report.steps_ms = {}
    # Both work on copies, below folders of their own.
    account = report.account
    account.ranges = [one._replace(path=Path(one.path.name)) for one in account.ranges]
    account.not_compared = [one._replace(path=Path(one.path.name)) for one in account.not_compared]
    return report


def assert_rebuilt_alike(spark: SparkSession, local: Path, other: Path, **options: Any) -> RebuildReport:
    expected = rebuild_store(local, **options)
    report = rebuild_on_spark(spark, other, **options)
    assert files(other) == files(local)
    assert without_times(report) == without_times(expected)
    return report


def test_both_engines_assign_swapped_queues_by_their_records(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    store = filled(tmp_path / "store", rng)
    largest = sorted((store / "consumequeue").glob("*/*"), key=lambda queue: (-len(list(queue.iterdir())), str(queue)))
    first, second = largest[:2]
    aside = first.with_name("aside")
    for source, target in ((first, aside), (second, first), (aside, second)):
        source.rename(target)
    options = {"config": SMALL, "given": GEOMETRY_KEYS}
    out = {"kind": ExportFormat.JSONL, **options}
    expected, report = export_store(store, tmp_path / "l", **out), export_on_spark(spark, store, tmp_path / "s", **out)
    assert report.account == expected.account
    assert (len(report.account.misfiled), report.account.messages) == (2, [])
    local, other = copies(store, tmp_path)
    expected_of, report_of = rebuild_store(local, **options), rebuild_on_spark(spark, other, **options)
    assert files(other) == files(local)
    told = [
        [(one.path.name, one.owner, one.files) for one in each.account.misfiled] for each in (expected_of, report_of)
    ]
    assert (told[0], report_of.account.messages) == (told[1], [])


# Neither engine rebuilds where a file of the log is missing; a broker does not start with it either.
@pytest.mark.parametrize("damage", ["no_queues", "broken", "no_end", "wrong_records"])
def test_rebuild_on_spark_writes_bytes_of_local_engine(
    spark: SparkSession, tmp_path: Path, rng: random.Random, damage: str
) -> None:
    store = filled(tmp_path / "store", rng)
    several = {"broken": BROKEN, "wrong_records": ("log_file_copied", "records_of_wrong_queues")}
    for name in several.get(damage, (damage,)):
        DAMAGES[name](store, rng)
    assert_rebuilt_alike(spark, *copies(store, tmp_path), config=SMALL, given=GEOMETRY_KEYS)


def test_rebuild_on_spark_lists_quarantined_and_torn_records_of_local_engine(
    spark: SparkSession, tmp_path: Path
) -> None:
    strays = store_of_strays(tmp_path / "store")
    local, other = copies(tmp_path / "store", tmp_path)
    report = assert_rebuilt_alike(spark, local, other, config=SMALL, given=GEOMETRY_KEYS)
    assert [record.phy_offset for record in report.account.quarantined] == strays
    assert (len(report.account.ranges), report.account.messages) == (1, [])


@pytest.mark.parametrize("name", [pytest.param("broker-features", marks=SLOW), "lost-queues-many-files"])
def test_rebuild_of_golden_store_on_spark_equals_local_engine(spark: SparkSession, tmp_path: Path, name: str) -> None:
    store = unpack(name, tmp_path) / "store"
    assert_rebuilt_alike(spark, *copies(store, tmp_path))


def test_rebuild_on_spark_keeps_deleted_topic_deleted(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        for number in range(200):
            store.put(Message("gone" if number % 2 else "kept", b"%d" % number, number % 4))
        store.delete_topic("gone")
        store.put(Message("gone", b"new", 1))
    local, other = copies(path, tmp_path)
    assert_rebuilt_alike(spark, local, other, config=SMALL, given=GEOMETRY_KEYS)
    for one in (path, other):
        assert list(verify_on_spark(spark, one, SMALL, given=GEOMETRY_KEYS)) == []
    with MessageStore.open(other, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        assert [store.get("gone", number, 0).max_offset for number in range(4)] == [0, 1, 0, 0]
        assert store.get("kept", 2, 0).max_offset == 50


def test_rebuild_with_part_option_writes_only_that_part(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    store = filled(tmp_path / "store", rng, 300)
    no_queues(store, rng)
    for part in ("queues", "index"):
        local, other = copies(store, tmp_path / part)
        options = {"config": SMALL, "given": GEOMETRY_KEYS, "queues": part == "queues", "index": part == "index"}
        assert_rebuilt_alike(spark, local, other, **options)


def with_a_topic_made_anew(path: Path) -> Path:
    """Of a queue's one new message the old queue alone knows that it is the first."""
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        queues = [queue_id for topic, queue_id, _, _ in store.queues() if topic == TOPICS[0]]
        assert store.delete_topic(TOPICS[0]).queues == len(queues)
        for queue_id in queues:
            store.put(Message(TOPICS[0], b"new", queue_id))
        await_dispatch(store)
    return path


@pytest.mark.parametrize(("kind", "text"), [(DiskFullError, "no room on the disk"), (StoreError, "ZeroDivisionError")])
def test_failed_rebuild_keeps_old_files(
    spark: SparkSession,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[StoreError],
    text: str,
) -> None:
    store = with_a_topic_made_anew(filled(tmp_path / "store", rng, 300))
    before, write = files(store), rebuild._write

    def write_and_fail(*arguments: Any) -> Iterator[Any]:
        yield from write(*arguments)
        if kind is DiskFullError:
            raise DiskFullError("a/disk", 5)
        raise ZeroDivisionError

    # A function within a function goes to the executors as it is.
    monkeypatch.setattr(rebuild, "_write", write_and_fail)
    with pytest.raises(kind, match=text):
        rebuild_on_spark(spark, store, SMALL, given=GEOMETRY_KEYS)
    after = files(store)
    assert {name: after.get(name) for name in before} == before
    assert all(name.startswith("rebuild.tmp/") for name in after.keys() - before.keys())
    monkeypatch.undo()
    rebuild_on_spark(spark, store, SMALL, given=GEOMETRY_KEYS)
    assert files(store) == before
    assert list(verify_store(store, SMALL, given=GEOMETRY_KEYS)) == []


# Verify


def assert_verified_alike(spark: SparkSession, store: Path, **options: Any) -> list[Finding]:
    expected = verify_store(store, now_ms=FUTURE_MS, **options)
    found = verify_on_spark(spark, store, now_ms=FUTURE_MS, **options)
    findings = list(expected)
    assert list(found) == findings
    assert found.summary == expected.summary
    return findings


@pytest.mark.parametrize(
    "damage",
    # The last is the others at once.
    ["nothing", "no_queues", *(pytest.param(one, marks=SLOW) for one in ("queues_damaged", "index_damaged")),
     "broken", "everything"],
)  # fmt: skip
def test_verify_on_spark_has_findings_of_local_engine(
    spark: SparkSession, tmp_path: Path, rng: random.Random, damage: str
) -> None:
    store = filled(tmp_path / "store", rng)
    for name in {"everything": EVERYTHING, "broken": ["zeros", "holes_in_the_log"]}.get(damage, [damage]):
        DAMAGES[name](store, rng)
    assert assert_verified_alike(spark, store, config=SMALL, given=GEOMETRY_KEYS) or damage == "nothing"


# Salvage


@pytest.mark.parametrize(
    "damage", [pytest.param("nothing", marks=SLOW), "everything", "no_end", pytest.param("with_crc", marks=SLOW)]
)
def test_salvage_on_spark_writes_store_of_local_engine(
    spark: SparkSession, tmp_path: Path, rng: random.Random, damage: str
) -> None:
    config = replace(SMALL, enabled_append_prop_crc=True) if damage == "with_crc" else SMALL
    store = filled(tmp_path / "store", rng, config=config)
    for name in {"everything": EVERYTHING, "with_crc": ["zeros", "holes_in_the_log"]}.get(damage, [damage]):
        DAMAGES[name](store, rng)
    expected = salvage_store(store, tmp_path / "local", SMALL, given=GEOMETRY_KEYS)
    report = salvage_on_spark(spark, store, tmp_path / "spark", SMALL, given=GEOMETRY_KEYS)
    assert files(tmp_path / "spark") == files(tmp_path / "local")
    assert report == expected


def test_salvage_without_whole_record_is_refused(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    store = filled(tmp_path / "store", rng, 20)
    for path in (store / "commitlog").iterdir():
        write(path, 0, bytes(LOG_FILE))
    with pytest.raises(StoreError, match="no whole record"):
        salvage_on_spark(spark, store, tmp_path / "out", SMALL, given=GEOMETRY_KEYS)


# Export


def exported(out: Path) -> dict[str, list[Any]]:
    """The rows of each directory, in the order of its files' names."""
    assert (out / "_SUCCESS").exists()
    assert list(out.rglob(".*")) == []
    found: dict[str, list[Any]] = {}
    for path in sorted(out.glob("*/*/*")):
        rows = found.setdefault(str(path.parent.relative_to(out)), [])
        rows += ParquetFile(path).read().to_pylist() if path.suffix == ".parquet" else path.read_bytes().splitlines()
    return found


@pytest.mark.parametrize(
    ("kind", "selection"),
    [
        (ExportFormat.PARQUET, ExportSelection()),
        (ExportFormat.JSONL, ExportSelection(frozenset({"orders"}), 0, from_offset=5, to_offset=90)),
    ],
)
def test_export_on_spark_has_rows_of_local_engine(
    spark: SparkSession, tmp_path: Path, rng: random.Random, kind: ExportFormat, selection: ExportSelection
) -> None:
    store = filled(tmp_path / "store", rng)
    holes_in_the_log(store, rng)
    options = {"kind": kind, "selection": selection, "config": SMALL, "given": GEOMETRY_KEYS}
    expected = export_store(store, tmp_path / "local", **options)
    report = export_on_spark(spark, store, tmp_path / "spark", **options)
    assert exported(tmp_path / "spark") == exported(tmp_path / "local")
    assert report.files > expected.files
    sizes = {"files": 0, "file_bytes": 0}
    assert replace(report, **sizes) == replace(expected, **sizes)


def test_failed_export_leaves_nothing(
    spark: SparkSession, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = filled(tmp_path / "store", rng, 300), tmp_path / "out"
    export_group = export._export_group

    def export_and_fail(*arguments: Any) -> Any:
        export_group(*arguments)
        raise DiskFullError("a/disk", 5)

    monkeypatch.setattr(export, "_export_group", export_and_fail)
    with pytest.raises(DiskFullError):
        export_on_spark(spark, store, out, config=SMALL, given=GEOMETRY_KEYS)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def copy_over(store: Path, rng: random.Random) -> None:
    files = sorted((store / "commitlog").iterdir())
    shutil.copyfile(files[6], files[5])


def flip_bodies_and_ends(store: Path, rng: random.Random) -> None:
    """A bit of the CRC of the last record of three files, and of the queue offset of the one before."""
    for path in (sorted((store / "commitlog").iterdir())[number] for number in (0, 7, -1)):
        raw = bytearray(path.read_bytes())
        at = last = before = 0
        while int.from_bytes(raw[at + 4 : at + 8], "big") in (MAGIC_V1, MAGIC_V2):
            before, last, at = last, at, at + int.from_bytes(raw[at : at + 4], "big")
        raw[last + 8] ^= 1  # its CRC
        raw[before + QUEUE_OFFSET_AT + 5] ^= 1
        path.write_bytes(raw)


def lose_units_and_files(store: Path, rng: random.Random) -> None:
    sorted((store / "commitlog").iterdir())[3].unlink()
    sorted((store / "commitlog").iterdir())[-1].unlink()
    for path in list(store.glob("consumequeue/*/*/*"))[::3]:
        path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [copy_over, flip_bodies_and_ends, lose_units_and_files])
def test_both_engines_export_same_rows_and_name_same_losses_of_damaged_store(
    spark: SparkSession, tmp_path: Path, rng: random.Random, damage: Callable[[Path, random.Random], None]
) -> None:
    store = filled(tmp_path / "store", rng)
    damage(store, rng)
    options = {"kind": ExportFormat.JSONL, "config": SMALL, "given": GEOMETRY_KEYS}
    expected = export_store(store, tmp_path / "local", **options)
    report = export_on_spark(spark, store, tmp_path / "spark", **options)
    assert exported(tmp_path / "spark") == exported(tmp_path / "local")
    assert report.account == expected.account
    assert report.account.messages


# The command line


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    code = exit_code(["store", *map(str, arguments), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_commands_print_same_output_with_both_engines(
    spark: SparkSession, tmp_path: Path, rng: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    store = filled(tmp_path / "store", rng, 300)
    write(log_file(store, 2), 1000, b"\xff" * 2000)
    settings = [f"--set={key}={value}" for key, value in SMALL_KEYS.items()]
    said = {}
    for engine in ("local", "spark"):
        copy = Path(shutil.copytree(store, tmp_path / engine / "store"))
        options = [f"--engine={engine}", *settings]
        said[engine] = [
            run(capsys, "verify", copy, *options),
            run(capsys, "salvage", copy, copy.with_name("saved"), *options),
            run(capsys, "export", copy, copy.with_name("out"), "--topic=orders", *options),
            run(capsys, "rebuild", copy, *options),
        ]
        assert said[engine][0][1][-1]["outlook"]["salvageKeeps"] > 0
        assert [lines[-1]["engine"] for _, lines in said[engine][1:]] == [engine] * 3
    assert comparable(said["spark"]) == comparable(said["local"])
    assert [code for code, _ in said["spark"]] == [1, 1, 1, 1]


def comparable(said: list[tuple[int, list[dict[str, Any]]]]) -> list[Any]:
    """Without what must differ."""
    differing = {"store", "out", "engine", "tookMs", "stepsMs", "totalMs", "files", "fileBytes"}
    return [
        (code, [{key: value for key, value in line.items() if key not in differing} for line in lines])
        for code, lines in said
    ]


@pytest.mark.parametrize("conf", ["spark.master", "master=local"])
def test_spark_conf_without_key_and_value_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], conf: str
) -> None:
    assert exit_code(["store", "verify", str(tmp_path), "--engine", "spark", "--spark-conf", conf]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


class BrokenDisk(io.RawIOBase):
    """A file that cannot be written to."""

    def writable(self) -> bool:
        return True

    def write(self, _: object) -> int:
        raise OSError(errno.EIO, "Input/output error")


def staged_entry(stage: EntryStage, kind: type[StoreError], file: io.BufferedWriter | None = None) -> None:
    """The last entries wait in memory until the file is flushed, or closed: neither can be."""
    with stage:
        if file is not None:
            stage._file.close()
            stage._file = file
        stage._file.write(b"entry")
        with pytest.raises(kind):
            stage.staged()


def test_staged_entries_on_full_or_broken_disk_raise(tmp_path: Path) -> None:
    full, nowhere = EntryStage(tmp_path), EntryStage(tmp_path)
    full._path, nowhere._path = Path("/dev/full"), tmp_path
    with pytest.raises(DiskFullError):
        staged_entry(full, DiskFullError)
    with pytest.raises(DiskError, match="Input/output error"):
        staged_entry(EntryStage(tmp_path), DiskError, io.BufferedWriter(BrokenDisk()))
    with pytest.raises(StoreError, match="is a directory"):
        staged_entry(nowhere, StoreError)
