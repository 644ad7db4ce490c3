"""What rebuild and salvage make is what the real RocketMQ makes, and reads."""

import random
import shutil
from pathlib import Path

import pytest

from gantrymq.clock import ManualClock
from gantrymq.fs.real import RealFileSystem
from gantrymq.tools.findings import Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import (
    GEOMETRY_KEYS,
    NOON_MS,
    SMALL,
    SMALL_KEYS,
    Line,
    await_dispatch,
    dump,
    fill,
    open_reader,
    open_store,
)

from .java import JavaStore

pytestmark = pytest.mark.interop

LOG_FILE = SMALL.mapped_file_size_commit_log


def files(store: Path, part: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(store.glob(f"{part}/**/*")) if path.is_file()]


def messages(lines: list[Line]) -> dict[tuple[str, int, int], Line]:
    """By topic, queue and queue offset. What Java calls unreadable are the filled slots."""
    read = [line for line in lines if line["kind"] == "message"]
    return {(line["topic"], line["queueId"], line["queueOffset"]): line for line in read}


def next_offsets(lines: list[Line]) -> dict[tuple[str, int], int]:
    return {(line["topic"], line["queueId"]): line["maxOffset"] for line in lines if line["kind"] == "queue"}


def written_by_java(path: Path, messages: int) -> JavaStore:
    java = JavaStore(path, SMALL_KEYS)
    java.write(messages, seed=7, profile="mixed", store_time=NOON_MS, store_time_step=1)
    return java


def test_store_of_java_has_no_finding_and_rebuilds_to_the_same_bytes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    written_by_java(store, 400)
    assert list(verify_store(store, SMALL, given=GEOMETRY_KEYS)) == []
    queues, index = files(store, "consumequeue"), files(store, "index")
    rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    assert files(store, "consumequeue") == queues
    assert files(store, "index") == index


def test_rebuild_equals_recovery_of_java_without_queues(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    written_by_java(ours, 120)
    shutil.copytree(ours, theirs)
    for store in (ours, theirs):
        shutil.rmtree(store / "consumequeue")
        shutil.rmtree(store / "index")
    rebuild_store(ours, SMALL, given=GEOMETRY_KEYS)
    JavaStore(theirs, SMALL_KEYS | {"commitLogRecoverMaxNum": 1000}).dump()
    assert files(ours, "consumequeue") == files(theirs, "consumequeue")
    assert files(ours, "index") == files(theirs, "index")


@pytest.mark.parametrize("damage", ["none", "records", "file"])
def test_java_reads_every_message_of_salvaged_store(tmp_path: Path, rng: random.Random, damage: str) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    with open_store(RealFileSystem(), store, clock=ManualClock(NOON_MS)) as opened:
        results = fill(opened, 300, rng)
        await_dispatch(opened)
    if damage == "records":
        for result in (results[30], results[31], results[150]):
            with (store / "commitlog" / f"{result.phy_offset - result.phy_offset % LOG_FILE:020d}").open("r+b") as file:
                file.seek(result.phy_offset % LOG_FILE)
                file.write(b"\xff" * 9)
    if damage == "file":
        (store / "commitlog" / f"{3 * LOG_FILE:020d}").unlink()
    report = salvage_store(store, out, SMALL, given=GEOMETRY_KEYS)
    assert (report.lost == []) == (damage == "none")
    with open_reader(out) as reader:
        ours = dump(reader)
    java = JavaStore(out, SMALL_KEYS)
    theirs = java.dump()
    assert messages(theirs) == messages(ours)
    assert len(messages(ours)) == sum(line["kind"] == "message" for line in ours)
    assert next_offsets(theirs) == next_offsets(ours)
    findings = verify_store(out, SMALL, given=GEOMETRY_KEYS)
    assert [one for one in findings if one.level is Severity.DAMAGE] == []
