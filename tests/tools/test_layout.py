"""Damage to the files of a store as an operator meets it: what reads shows the rest, what refuses names what helps."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from layout_cases import findings, make_store, parts

from gantrymq.broker.tables.persistence import table_decoders
from gantrymq.errors import (
    ConfigError,
    DuplicateFileError,
    MissingFileError,
    MissingLogError,
    NotAStoreError,
    StoreError,
    WrongFileSizeError,
)
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, open_reader, open_store, tree

MESSAGES = 900


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of several files of each kind."""
    return make_store(tmp_path_factory.mktemp("layout") / "store", MESSAGES)


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def readable(store: Path) -> tuple[int, int]:
    """How many messages a reader gives, and how many entries it cannot read."""
    with open_reader(store) as reader:
        found = [message for queue in reader.consume_queues for _, _, message in reader.entries(queue)]
    return sum(one is not None for one in found), sum(one is None for one in found)


LOG_DAMAGE: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "short": lambda path: os.truncate(path, 5_000),
    "empty": lambda path: os.truncate(path, 0),
    "long": lambda path: os.truncate(path, 2 * SMALL.mapped_file_size_commit_log),
}


@pytest.mark.parametrize("damage", LOG_DAMAGE)
def test_missing_or_wrong_middle_log_file_is_named_and_rest_is_read(store: Path, damage: str) -> None:
    victim = parts(store, "commitlog")[2]
    LOG_DAMAGE[damage](victim)
    before = tree(store)
    messages, unreadable = readable(store)
    assert messages + unreadable == MESSAGES
    assert messages > MESSAGES * 2 // 3
    with open_reader(store) as reader:
        assert [problem.path for problem in reader.problems] == [victim]
        with pytest.raises((MissingFileError, WrongFileSizeError), match="salvage"):
            reader.plan()
    with pytest.raises((MissingFileError, WrongFileSizeError), match=f"^{victim}: .*gantrymq store salvage"):
        open_store(RealFileSystem(), store)
    assert tree(store) == before
    found = {(finding.kind, store / finding.path) for finding in findings(store)}
    assert found & {(FindingKind.LOG_FILE_MISSING, victim), (FindingKind.FILE_SIZE, victim)}


@pytest.mark.parametrize("lengths", [[12_000], [9_000, 12_000, 14_000]])
def test_uniformly_truncated_log_files_have_length_of_their_names(
    store: Path, tmp_path: Path, lengths: list[int]
) -> None:
    for number, path in enumerate(parts(store, "commitlog")):
        os.truncate(path, lengths[number % len(lengths)])
    with StoreReader.open(store) as reader:
        found = [message for queue in reader.consume_queues for _, _, message in reader.entries(queue)]
    readable = sum(one is not None for one in found)
    assert readable > MESSAGES // 2
    assert salvage_store(store, tmp_path / "out").records == readable
    with pytest.raises(WrongFileSizeError, match="gantrymq store salvage"):
        MessageStore.open(store)


def test_short_only_log_file_is_reported_as_damage(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", 3)
    [path] = parts(store, "commitlog")
    os.truncate(path, 200)
    assert (FindingKind.FILE_SIZE, path) in {(one.kind, store / one.path) for one in verify_store(store)}
    with StoreReader.open(store) as reader:
        assert path in [problem.path for problem in reader.problems]
    with pytest.raises(StoreError, match=f"^{path}: is .*gantrymq store"):
        MessageStore.open(store)
    assert salvage_store(store, tmp_path / "out").records == 1


def test_only_log_file_without_trailing_zeros_loses_no_message(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", 30)
    [path] = parts(store, "commitlog")
    path.write_bytes(path.read_bytes().rstrip(b"\0"))
    report = salvage_store(store, tmp_path / "out")
    assert (report.records, report.is_whole) == (30, True)
    assert [one for one in verify_store(tmp_path / "out") if one.level is Severity.DAMAGE] == []


@pytest.mark.parametrize("source", [0, 1])
def test_log_file_in_two_directories_is_named_and_matching_one_is_read(
    healthy: Path, tmp_path: Path, source: int
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    config = replace(SMALL, store_path_commit_log=",".join(map(str, paths)))
    store = Path(shutil.copytree(healthy, tmp_path / "store"))
    paths[0].mkdir()
    shutil.move(store / "commitlog", paths[1])
    files = sorted(paths[1].iterdir())
    shutil.copyfile(files[source], paths[0] / files[1].name)
    duplicate = paths[source] / files[1].name
    with StoreReader.open(store, config, given=GEOMETRY_KEYS) as reader:
        assert [problem.path for problem in reader.problems] == [duplicate]
        found = [message for queue in reader.consume_queues for _, _, message in reader.entries(queue)]
    assert (len(found), None in found) == (MESSAGES, False)
    with pytest.raises(DuplicateFileError, match=r"is there twice, also as .*move one of them away.*salvage"):
        MessageStore.open(store, config, given=GEOMETRY_KEYS)
    damage = [one for one in verify_store(store, config, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE]
    assert [(one.kind, one.path) for one in damage] == [(FindingKind.FOREIGN_FILE, duplicate)]
    assert salvage_store(store, tmp_path / "out", config, given=GEOMETRY_KEYS).records == MESSAGES


@pytest.mark.parametrize("damage", LOG_DAMAGE)
def test_salvage_of_damaged_log_has_every_readable_message(store: Path, tmp_path: Path, damage: str) -> None:
    LOG_DAMAGE[damage](parts(store, "commitlog")[2])
    messages, _ = readable(store)
    assert salvage_store(store, tmp_path / "out", SMALL, given=GEOMETRY_KEYS).records == messages
    assert [one for one in findings(tmp_path / "out") if one.level is Severity.DAMAGE] == []


def test_accepted_missing_log_file_leaves_store_without_hole(store: Path) -> None:
    victim = parts(store, "commitlog")[2]
    victim.unlink()
    accepted = SMALL.__class__(**{**vars_of(SMALL), "accept_missing_commit_log": True})
    before = readable(store)
    with open_store(RealFileSystem(), store, accepted) as opened:
        opened.put(Message("orders", b"new"))
    assert victim.stat().st_size == SMALL.mapped_file_size_commit_log
    with open_store(RealFileSystem(), store) as opened:
        assert opened.recovery.cut_bytes == 0
    assert readable(store) == (before[0] + 1, before[1])


def vars_of(config: object) -> dict[str, object]:
    import dataclasses

    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}  # type: ignore[arg-type]


QUEUE_DAMAGE: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "short": lambda path: os.truncate(path, 333),
    "empty": lambda path: os.truncate(path, 0),
    "long": lambda path: os.truncate(path, 2 * SMALL.mapped_file_size_consume_queue),
}


@pytest.mark.parametrize("damage", QUEUE_DAMAGE)
def test_missing_or_wrong_middle_queue_file_is_read_from_log_and_rebuilt(store: Path, damage: str) -> None:
    victim = parts(store, "consumequeue/orders/1")[1]
    QUEUE_DAMAGE[damage](victim)
    before = tree(store)
    assert readable(store) == (MESSAGES, 0)
    with StoreReader.open(store, SMALL, given=GEOMETRY_KEYS, trusts_writer=True) as reader:
        assert [problem.path for problem in reader.problems] == [victim]
        assert sum(queue.max_offset for queue in reader.consume_queues) == MESSAGES
    with pytest.raises((MissingFileError, WrongFileSizeError), match=f"^{victim}: .*gantrymq store rebuild"):
        open_store(RealFileSystem(), store)
    assert tree(store) == before
    assert any(store / one.path == victim and one.level is Severity.DAMAGE for one in findings(store))
    rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    assert findings(store) == []


@pytest.mark.parametrize("which", [0, -1])
def test_empty_newest_queue_file_of_closed_store_is_refilled(store: Path, which: int) -> None:
    """Its newest records may lie far in front of the end of the log."""
    with open_store(RealFileSystem(), store) as opened:
        opened.put(Message("quiet", b"first", keys=["q"]))
        opened.put_batch([Message("orders", b"x" * 50) for _ in range(MESSAGES)])
    folder = "consumequeue/quiet/0" if which == 0 else "consumequeue/orders/0"
    os.truncate(parts(store, folder)[which], 0)
    with StoreReader.open(store, SMALL, given=GEOMETRY_KEYS, trusts_writer=True) as reader:
        assert sum(queue.max_offset for queue in reader.consume_queues) == 2 * MESSAGES + 1
    with open_store(RealFileSystem(), store) as opened:
        assert sum(count for _, _, _, count in opened.queues()) == 2 * MESSAGES + 1
    assert findings(store) == []


@pytest.mark.parametrize("size_bytes", [0, 13, 40, 4_444])
@pytest.mark.parametrize("which", [0, -1])
def test_index_file_of_wrong_length_in_closed_store_is_rebuilt(store: Path, size_bytes: int, which: int) -> None:
    os.truncate(parts(store, "index")[which], size_bytes)
    with open_reader(store) as reader:
        assert len({offset for i in range(MESSAGES) for offset in reader.query_offsets("orders", f"k{i}")}) == MESSAGES
    with open_store(RealFileSystem(), store) as opened:
        assert opened.recovery.index_files_dropped
    assert findings(store) == []


def test_short_index_file_is_rebuilt_even_if_it_is_only_one(tmp_path: Path) -> None:
    with open_store(RealFileSystem(), tmp_path) as store:
        store.put(Message("orders", b"x", keys=["k"]))
    (index,) = (tmp_path / "index").iterdir()
    os.truncate(index, 1_000)
    with StoreReader.open(tmp_path) as reader:
        assert reader.query_offsets("orders", "k") == [0]


def foreign_entries(folder: Path) -> Iterator[Path]:
    for name in ("lost+found", "99999999999999999999", "00000000000000000001"):
        (folder / name).mkdir(mode=0)
        yield folder / name
    for name in (".nfs000001", "00000000000000000000.bak", "zzz~", os.fsdecode(b"w\xff\n")):
        (folder / name).write_bytes(b"" if name.startswith("z") else b"x")
        yield folder / name
    os.mkfifo(folder / "pipe")
    yield folder / "pipe"
    (folder / "link").symlink_to("/nowhere/at/all")
    yield folder / "link"


@pytest.mark.parametrize(
    "part", [".", "commitlog", "consumequeue", "consumequeue/orders", "consumequeue/orders/0", "index"]
)
def test_foreign_entries_in_any_directory_stop_nothing_and_stay(store: Path, part: str) -> None:
    entries = list(foreign_entries(store / part))
    assert readable(store) == (MESSAGES, 0)
    found = findings(store)
    assert {finding.kind for finding in found} == {FindingKind.FOREIGN_FILE}
    assert {finding.level for finding in found} == {Severity.NOTE}
    # A link that leads nowhere is not seen, and a name of digits may be that of a topic.
    assert len(found) >= len(entries) - 3
    with open_reader(store) as reader:
        planned = reader.plan()
    with open_store(RealFileSystem(), store) as opened:
        assert (opened.recovery.removed_files, planned.removed_files) == ([], [])
        opened.put_batch([Message("orders", b"x") for _ in range(10)])
    rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    assert all(os.path.lexists(path) for path in entries)


def test_unreadable_directory_outside_topics_is_skipped(store: Path) -> None:
    class Guarded(RealFileSystem):
        def scan(self, path: Path):  # type: ignore[no-untyped-def]
            if path.name == "lost+found":
                from gantrymq.errors import StorePermissionError

                raise StorePermissionError(path, "Permission denied")
            return super().scan(path)

    (store / "consumequeue" / "lost+found").mkdir()
    with open_store(Guarded(), store) as opened:
        assert len(opened.queues()) == 2
    assert [finding.level for finding in verify_store(store, SMALL, given=GEOMETRY_KEYS, fs=Guarded())] == [
        Severity.NOTE
    ]


@pytest.mark.parametrize(
    ("setting", "value", "key"),
    [
        ("mapped_file_size_commit_log", 2_048, "mappedFileSizeCommitLog"),
        ("mapped_file_size_consume_queue", 40, "mappedFileSizeConsumeQueue"),
        ("max_hash_slot_num", 7, "maxHashSlotNum"),
    ],
)
def test_wrong_size_setting_for_healthy_store_raises_one_error_naming_key(
    store: Path, setting: str, value: int, key: str
) -> None:
    wrong = SMALL.__class__(**{**vars_of(SMALL), setting: value})
    before = tree(store)
    for attempt in (
        lambda: open_store(RealFileSystem(), store, wrong),
        lambda: list(verify_store(store, wrong, given=GEOMETRY_KEYS)),
        lambda: open_reader(store, wrong).plan(),
    ):
        with pytest.raises(ConfigError, match=f"{key}={value} .* files"):
            attempt()
    assert tree(store) == before


@pytest.mark.parametrize("rename", [lambda name: name[2:], lambda name: f"{name}.bak", lambda name: "core.4711"])
@pytest.mark.parametrize("which", [2, -1])
def test_renamed_log_file_is_salvaged_and_named_by_other_commands(
    store: Path, tmp_path: Path, rename: Callable[[str], str], which: int
) -> None:
    victim = parts(store, "commitlog")[which]
    renamed = victim.rename(victim.with_name(rename(victim.name)))
    with pytest.raises((MissingFileError, MissingLogError), match=f"{renamed}.*rename it"):
        open_store(RealFileSystem(), store)
    (note,) = [finding for finding in findings(store) if finding.kind is FindingKind.FOREIGN_FILE]
    assert note.level is Severity.NOTE
    assert "holds records" in note.text
    report = salvage_store(store, tmp_path / "out", SMALL, given=GEOMETRY_KEYS)
    assert (report.records, report.skipped_files) == (MESSAGES, [])


@pytest.mark.parametrize("damage", ["removed", "no files", "zeros"])
def test_rebuild_does_not_take_missing_log_for_empty_log(store: Path, damage: str) -> None:
    if damage == "removed":
        shutil.rmtree(store / "commitlog")
    for path in parts(store, "commitlog") if damage != "removed" else ():
        path.unlink() if damage == "no files" else path.write_bytes(bytes(SMALL.mapped_file_size_commit_log))
    before = tree(store)
    with pytest.raises(MissingLogError, match=r"storePathCommitLog.*acceptMissingCommitLog=true"):
        rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    assert tree(store) == before
    assert readable(store) == (0, MESSAGES)
    assert FindingKind.LOG_MISSING in {finding.kind for finding in findings(store)}


def test_store_error_is_one_line(store: Path) -> None:
    parts(store, "commitlog")[2].unlink()
    with pytest.raises(StoreError) as refused:
        open_store(RealFileSystem(), store)
    assert "\n" not in str(refused.value)


def test_store_can_be_created_on_mounted_disk_with_prepared_config(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir(mode=0)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{}")
    with open_store(RealFileSystem(), tmp_path) as store:
        store.put(Message("orders", b"x"))
    assert findings(tmp_path)[0].level is Severity.NOTE


SHAPES = {
    "topics.json": '{"topicConfigTable":[]}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{"G":5}}',
    "consumerOffset.json": '{"offsetTable":{"T@G":{"0":"many"}}}',
}


@pytest.mark.parametrize("backup", ["", ".bak"])
@pytest.mark.parametrize("name", SHAPES)
def test_verify_decodes_same_tables_as_broker(store: Path, name: str, backup: str) -> None:
    (store / "config").mkdir()
    (store / "config/topics.json").write_text("{}")  # without it there is a note
    (store / "config" / f"{name}{backup}").write_text(SHAPES[name])
    (found,) = verify_store(store, SMALL, given=GEOMETRY_KEYS, decoders=table_decoders())
    assert (found.kind, found.level) == (FindingKind.CONFIG_JSON, Severity.DAMAGE)
    assert "a broker does not start" in found.text
    (store / "config" / f"{name}{backup}").write_text("{}")
    assert list(verify_store(store, SMALL, given=GEOMETRY_KEYS, decoders=table_decoders())) == []


WRONG_KIND: dict[str, tuple[str, FindingKind]] = {
    "checkpoint": ("recover", FindingKind.CHECKPOINT_CORRUPT),
    "index": ("recover", FindingKind.FOREIGN_FILE),
    "consumequeue": ("rebuild", FindingKind.FOREIGN_FILE),
    "consumequeue/orders": ("rebuild", FindingKind.MESSAGE_WITHOUT_ENTRY),
    "consumequeue/orders/0": ("rebuild", FindingKind.MESSAGE_WITHOUT_ENTRY),
}


@pytest.mark.parametrize("name", WRONG_KIND)
def test_file_in_place_of_directory_is_named_in_refusal_and_moved_away(store: Path, name: str) -> None:
    """Or a directory in the place of a file."""
    path, (remedy, kind) = store / name, WRONG_KIND[name]
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("foreign")
    else:
        path.unlink()
        path.mkdir()
    assert kind in {one.kind for one in findings(store) if one.level is Severity.DAMAGE}
    needed = f"^{re.escape(str(path))}: is a (file|directory) where a (file|directory) is needed; move it away"
    if name != "index":  # a start may leave the index behind
        with pytest.raises(NotAStoreError, match=needed):
            open_store(RealFileSystem(), store)
    with pytest.raises(NotAStoreError, match=needed):
        rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    path.rename(store.with_name("away"))
    if remedy == "rebuild":
        rebuild_store(store, SMALL, given=GEOMETRY_KEYS)
    else:
        open_store(RealFileSystem(), store).close()
    assert [one for one in findings(store) if one.level is Severity.DAMAGE] == []
