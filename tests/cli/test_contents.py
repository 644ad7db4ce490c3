"""Contents that are not honoured: each is refused before a file of the store changes, and accepted by its name.

``tests/contents/java-5.5.0.tar.xz`` has the small files of stores that RocketMQ 5.5.0 wrote with RocksDB, users, light
queues and topic attributes, and of a store with its defaults. tests/interop/test_contents.py writes them again.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from cli_cases import Run, tree

from gantrymq.config.guards import Level, Reason
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import NotHonouredError
from gantrymq.format.rocksdb_table import read_properties
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.contents import content_reasons, contents_note
from gantrymq.store.message_store import MessageStore
from gantrymq.store.paths import StorePaths
from gantrymq.tools.rebuild import rebuild_store
from golden_stores import NAMES, unpack

ARCHIVE = Path(__file__).parents[1] / "contents/java-5.5.0.tar.xz"
REFUSED = {
    "stock": [],
    "slave": [],
    "rocks": [
        "consumequeue", "config/topics", "config/subscriptionGroups", "config/consumerOffsets", "rocksdbstore",
    ],
    "rocks-separate": ["consumequeue_rocksdb", "config/metadata"],
    "rocks-switches": ["rocksdbstore"],
    "v2": ["config/rdb"],
    "auth": ["config/users"],
    "compaction": ["BT", "CT", "LT", "%LMQ%"],
}  # fmt: skip
GROUPS = {"BT": "queue.type", "CT": "cleanup.policy", "LT": "message.type", "%LMQ%": "enableLmq"}
SMALL = ("--set", "mappedFileSizeCommitLog=65536", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=60_000,
    max_hash_slot_num=100,
    max_index_num=400,
    timer_wheel_enable=False,
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("contents")
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, **safely)  # type: ignore[arg-type]
    return root


def reasons(store: Path) -> list[Reason]:
    return content_reasons(RealFileSystem(), StorePaths(store))


def refused(store: Path) -> list[str]:
    return [reason.name for reason in reasons(store) if reason.level is Level.REFUSED]


def write(path: Path, data: bytes | str = b"x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize("name", REFUSED)
def test_contents_of_java_store_are_refused_by_name(stores: Path, name: str) -> None:
    assert refused(stores / name) == REFUSED[name]


@pytest.mark.parametrize("name", [name for name in REFUSED if REFUSED[name]])
def test_open_and_rebuild_of_refused_contents_leave_store_unchanged(stores: Path, name: str) -> None:
    before, first = tree(stores / name), REFUSED[name][0]
    for work in (MessageStore.open, rebuild_store):
        with pytest.raises(NotHonouredError, match=f"accept it with acceptWithoutEffect={first}") as error:
            work(stores / name, CONFIG)
        assert error.value.more == len(REFUSED[name]) - 1
    assert tree(stores / name) == before


@pytest.mark.parametrize("name", NAMES)
def test_golden_store_is_not_refused(tmp_path: Path, name: str) -> None:
    store = unpack(name, tmp_path) / "store"
    assert reasons(store) == []
    assert contents_note(RealFileSystem(), StorePaths(store)) is None


@pytest.mark.parametrize("by_group", [False, True])
def test_accepted_contents_open_and_are_listed(tmp_path: Path, by_group: bool) -> None:
    attributes = {"CT": {"cleanup.policy": "COMPACTION"}, "BT": {"queue.type": "BatchCQ"}}
    topics = {name: {"topicName": name, "attributes": one} for name, one in attributes.items()}
    write(tmp_path / "config/topics.json", json.dumps({"topicConfigTable": topics}))
    names = [GROUPS[name] if by_group else name for name in topics]
    for missing, accepted in (("CT", names[1]), ("BT", names[0])):  # one alone is not enough
        with pytest.raises(NotHonouredError, match=f"topic {missing} has"):
            MessageStore.open(tmp_path, MessageStoreConfig(accept_without_effect=accepted))
    assert [path.name for path in tmp_path.iterdir()] == ["config"]
    with MessageStore.open(tmp_path, replace(CONFIG, accept_without_effect=",".join(names))) as store:
        assert [reason.name for reason in store.accepted_contents] == ["BT", "CT"]


def test_topics_without_marked_attributes_are_not_refused(tmp_path: Path) -> None:
    attributes = {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ", "message.type": "FIFO", "note": "COMPACTION"}
    table = {"topicConfigTable": {"T": {"topicName": "COMPACTION", "attributes": attributes}}}
    write(tmp_path / "config/topics.json", json.dumps(table))
    assert reasons(tmp_path) == []


def test_backup_of_blank_topic_table_is_examined(tmp_path: Path) -> None:
    table = {"topicConfigTable": {"T": {"topicName": "T", "attributes": {"cleanup.policy": "COMPACTION"}}}}
    write(tmp_path / "config/topics.json", b"\0" * 100)
    write(tmp_path / "config/topics.json.bak", json.dumps(table))
    assert refused(tmp_path) == ["T"]


def test_empty_leftovers_are_not_refused(tmp_path: Path) -> None:
    write(tmp_path / "config/topicQueueMapping.json", '{"topicQueueMappingInfoMap":{},"dataVersion":{}}')
    write(tmp_path / "config/lmqConsumerOffset.json", '{"lmqOffsetTable":{},"offsetTable":{}}')
    write(tmp_path / "config/tieredStoreMetadata.json", "{}")
    write(tmp_path / "config/users/CURRENT", "MANIFEST-000005\n")
    write(tmp_path / "config/users/000004.log", b"")
    write(tmp_path / "compaction/position-checkpoint", b"0")
    for name in ("compaction/compactionLog/T/0", "batchconsumequeue/T/0", "consumequeue/%LMQ%q/0", "dledger-n0/data"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path / "epochFileCheckpoint", b"")
    assert reasons(tmp_path) == []


FILE = "00000000000000000000"


@pytest.mark.parametrize(
    ("path", "data", "name"),
    [
        ("kvStore/000004.log", b"x", "kvStore"),
        ("config/acls/000009.sst", b"x", "config/acls"),
        ("rocksdbstore/000012.log", b"x", "rocksdbstore"),
        (f"compaction/compactionLog/T/0/{FILE}", b"x", "compaction"),
        (f"batchconsumequeue/T/0/{FILE}", b"x", "batchconsumequeue"),
        (f"dledger-n0/data/{FILE}", b"x", "dledger-n0"),
        ("epochFileCheckpoint", b"1\n", "epochFileCheckpoint"),
        ("brokerIdentity", b"x", "brokerIdentity"),
        (
            "config/topicQueueMapping.json",
            b'{"topicQueueMappingInfoMap":{"S":{"topic":"S"}}}',
            "config/topicQueueMapping.json",
        ),
        ("config/tieredStoreMetadata.json", b'{"queueMetadataTable":{"T":{}}}', "config/tieredStoreMetadata.json"),
        ("config/lmqConsumerOffset.json", b'{"lmqOffsetTable":{"%LMQ%q@g":3}}', "config/lmqConsumerOffset.json"),
    ],
)
def test_content_is_refused_by_its_path(tmp_path: Path, path: str, data: bytes, name: str) -> None:
    write(tmp_path / path, data)
    assert refused(tmp_path) == [name]
    note = contents_note(RealFileSystem(), StorePaths(tmp_path))
    assert note is not None
    assert str(tmp_path) in str(note)


def test_leftover_of_deleted_topic_is_not_refused(tmp_path: Path) -> None:
    write(tmp_path / f"compaction/compactionLog/GONE/0/{FILE}")
    write(tmp_path / "config/topics.json", '{"topicConfigTable":{"T":{"topicName":"T"}}}')
    assert refused(tmp_path) == []
    write(tmp_path / f"compaction/compactionLog/T/0/{FILE}")
    assert refused(tmp_path) == ["compaction"]


@pytest.mark.parametrize(
    ("theirs", "ours", "is_refused"),
    [(5, None, True), (5, 4, True), (5, 5, False), (5, 6, False), (0, None, True), (0, 0, False)],
)
def test_offsets_of_broker_with_light_queues_are_refused_if_ahead(
    tmp_path: Path, theirs: int, ours: int | None, is_refused: bool
) -> None:
    """RocketMQ with enableLmq=true keeps the offsets of all groups in lmqConsumerOffset.json."""
    table = f'{{"lmqOffsetTable":{{}},"offsetTable":{{"T@g":{{0:{theirs}}}}}}}'
    write(tmp_path / "config/lmqConsumerOffset.json", table)
    if ours is not None:
        write(tmp_path / "config/consumerOffset.json", f'{{"offsetTable":{{"T@g":{{0:{ours}}}}}}}')
    assert refused(tmp_path) == (["config/lmqConsumerOffset.json"] if is_refused else [])


def test_index_in_rocksdb_alone_causes_warning(stores: Path, tmp_path: Path) -> None:
    found = {}
    for path in (stores / "rocks/rocksdbstore").glob("*.sst"):
        data = path.read_bytes()
        properties = read_properties(len(data), lambda at, length, data=data: data[at : at + length])
        assert properties is not None
        found[properties.column_family] = data
        assert read_properties(len(data) - 1, lambda at, length, data=data: data[at : at + length]) is None
    assert sorted(found) == ["default", "timer"]
    write(tmp_path / "rocksdbstore/000014.sst", found["default"])
    assert [(reason.level, reason.name) for reason in reasons(tmp_path)] == [(Level.WARNING, "rocksdbstore")]


@pytest.mark.parametrize("directory", ["consumequeue", "config/users", "rocksdbstore"])
def test_rocksdb_directory_without_tables_and_logs_is_refused(directory: str, tmp_path: Path) -> None:
    write(tmp_path / "commitlog/00000000000000000000", bytes(1024))
    write(tmp_path / directory / "CURRENT", "MANIFEST-000005\n")
    write(tmp_path / directory / "MANIFEST-000005")
    assert refused(tmp_path) == [directory]


@pytest.mark.parametrize("words", [("info",), ("dump",), ("log",), ("show", "0"), ("pending",), ("query", "T", "k")])
def test_read_command_warns_once_about_refused_store(gantrymq: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    store = tmp_path / "store"
    lines = tmp_path / "lines"
    write(lines, '{"topic":"T","body":"x"}')
    assert gantrymq("store", "ingest", store, lines, *SMALL).code == 0
    write(store / "dledger-n0/data/00000000000000000000")
    outcome = gantrymq("store", words[0], store, *words[1:], *SMALL)
    assert (outcome.code, outcome.err.count("\n")) == (0, 1), outcome.err
    assert "the log of this store is a DLedger log (dledger-n0)" in outcome.err
