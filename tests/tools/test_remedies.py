"""Damage, a finding, the command that its text names: then nothing is left to find."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, encode_checkpoint
from gantrymq.format.names import offset_name
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.tools.findings import Finding, Kind, Level
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, open_store

MESSAGES = 600
_NOW_ISH_MS = 1_795_000_000_000
_FUTURE_MS = 4_000_000_000_000
_COMMAND = re.compile(r"`gantrymq store (\w+)( --index)?`|(move it away)")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("remedies") / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch([Message("orders", b"x" * 50, queue_id=i % 2, keys=[f"k{i}"]) for i in range(MESSAGES)])
    return path


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def findings(store: Path) -> list[Finding]:
    return list(verify_store(store, SMALL, given=GEOMETRY_KEYS))


def first(store: Path, part: str, number: int = 0) -> Path:
    return sorted((store / part).iterdir())[number]


def page(**fields: int) -> Callable[[Path], None]:
    return lambda store: _write_page(store, encode_checkpoint(replace(Checkpoint(_NOW_ISH_MS, _NOW_ISH_MS), **fields)))


def _write_page(store: Path, raw: bytes) -> None:
    (store / "checkpoint").write_bytes(raw)


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def killed_behind(store: Path) -> None:
    """As a kill leaves it: the last queue file is older than the log."""
    (store / "abort").touch()
    queue = first(store, "consumequeue/orders/0", -1)
    queue.write_bytes(bytes(SMALL.mapped_file_size_consume_queue))


def torn(store: Path) -> None:
    """Half a record stands behind the last one."""
    (store / "abort").touch()
    with open_store(RealFileSystem(), store) as opened:
        end = opened.max_phy_offset
    (store / "abort").touch()
    log = first(store, "commitlog", -1)
    write(log, end % SMALL.mapped_file_size_commit_log, (200).to_bytes(4, "big") + bytes.fromhex("daa320a7") + b"torn")


def stray_log_file(store: Path) -> None:
    (store / "commitlog" / offset_name(SMALL.mapped_file_size_commit_log * 90 + 1)).write_bytes(
        bytes(SMALL.mapped_file_size_commit_log)
    )


def bad_config(text: str, name: str = "topics.json") -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        (store / "config").mkdir()
        (store / "config" / name).write_text(text)

    return damage


DAMAGE: dict[str, tuple[Callable[[Path], None], Kind]] = {
    "checkpoint missing": (lambda store: (store / "checkpoint").unlink(), Kind.CHECKPOINT_MISSING),
    "checkpoint short": (lambda store: os.truncate(store / "checkpoint", 100), Kind.FILE_SIZE),
    "checkpoint empty": (lambda store: os.truncate(store / "checkpoint", 0), Kind.FILE_SIZE),
    "checkpoint long": (lambda store: os.truncate(store / "checkpoint", 5_000), Kind.FILE_SIZE),
    "checkpoint garbage": (lambda store: _write_page(store, b"\xa5" * CHECKPOINT_SIZE), Kind.CHECKPOINT_CORRUPT),
    "checkpoint text": (lambda store: _write_page(store, b"G" * CHECKPOINT_SIZE), Kind.CHECKPOINT_FUTURE),
    "checkpoint noise": (lambda store: write(store / "checkpoint", 2_000, b"noise"), Kind.CHECKPOINT_CORRUPT),
    "physicMsgTimestamp": (page(physic_msg_timestamp_ms=_FUTURE_MS), Kind.CHECKPOINT_FUTURE),
    "logicsMsgTimestamp": (page(logics_msg_timestamp_ms=_FUTURE_MS), Kind.CHECKPOINT_FUTURE),
    "indexMsgTimestamp": (page(index_msg_timestamp_ms=_FUTURE_MS), Kind.CHECKPOINT_FUTURE),
    "logicsPhysicalOffset": (page(logics_physical_offset=1 << 40), Kind.CHECKPOINT_FUTURE),
    "confirmPhyOffset": (page(confirm_phy_offset=1 << 40), Kind.CHECKPOINT_FUTURE),
    "negative": (page(confirm_phy_offset=-5), Kind.CHECKPOINT_CORRUPT),
    "queue behind": (killed_behind, Kind.QUEUE_BEHIND),
    "log torn": (torn, Kind.LOG_TAIL),
    "log file under a wrong offset": (stray_log_file, Kind.FOREIGN_FILE),
    "log file missing": (lambda store: first(store, "commitlog", 1).unlink(), Kind.LOG_FILE_MISSING),
    "log file short": (lambda store: os.truncate(first(store, "commitlog", 1), 4_000), Kind.FILE_SIZE),
    "queue file missing": (lambda store: first(store, "consumequeue/orders/0", 1).unlink(), Kind.QUEUE_FILE_MISSING),
    "queue file short": (lambda store: os.truncate(first(store, "consumequeue/orders/0", 1), 99), Kind.FILE_SIZE),
    "queue file empty": (lambda store: os.truncate(first(store, "consumequeue/orders/0", -1), 0), Kind.FILE_SIZE),
    "index removed": (lambda store: shutil.rmtree(store / "index"), Kind.INDEX_INCOMPLETE),
    "index file short": (lambda store: os.truncate(first(store, "index", -1), 1_000), Kind.FILE_SIZE),
    "index after a kill": (lambda store: (store / "abort").touch(), Kind.INDEX_WILL_BE_REBUILT),
    "config": (bad_config("{"), Kind.CONFIG_JSON),
    "config list": (bad_config("[]", "consumerFilter.json.bak"), Kind.CONFIG_JSON),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_a_finding_names_leaves_nothing_to_find(store: Path, damage: str) -> None:
    harm, kind = DAMAGE[damage]
    harm(store)
    found = [finding for finding in findings(store) if finding.kind is kind]
    assert found
    remedy = _COMMAND.search(found[0].text)
    assert remedy, f"the finding says nothing that helps: {found[0].text}"
    command = remedy[1] or "move"
    if command == "recover":
        open_store(RealFileSystem(), store).close()
    elif command == "rebuild":
        rebuild_store(store, SMALL, given=GEOMETRY_KEYS, queues=not remedy[2])
    elif command == "salvage":
        salvage_store(store, store.with_name("out"), SMALL, given=GEOMETRY_KEYS)
        store = store.with_name("out")
    else:
        (store / found[0].path).rename(store.with_name("moved"))
    left = [finding for finding in findings(store) if finding.level is Level.DAMAGE or finding.kind is kind]
    assert left == []
