"""Queue files and directories under the name of another queue: what the record says is believed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from loss_cases import LOG_FILE, KnownStore, Slot, assert_told, read_back

from gantrymq.errors import MisfiledQueueError
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.findings import Severity
from gantrymq.tools.read.filed_queues import FiledQueues, filed
from gantrymq.tools.read.log_places import log_files
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.reports import LossAccount
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, StoreReader, open_store

Harm = Callable[[Path], None]


def swap(one: Path, other: Path) -> None:
    aside = one.with_name(f"{one.name}.aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def swap_queues(queues: Path) -> None:
    swap(queues / "orders/0", queues / "orders/1")


def swap_queues_of_topics(queues: Path) -> None:
    swap(queues / "orders/0", queues / "bills/0")


def swap_topics(queues: Path) -> None:
    swap(queues / "orders", queues / "bills")


def copy_queue(queues: Path) -> None:
    shutil.copytree(queues / "orders/0", queues / "orders/9")


def rename_queue(queues: Path) -> None:
    (queues / "orders/0").rename(queues / "orders/8")


def rename_topic(queues: Path) -> None:
    (queues / "orders").rename(queues / "refunds")


def copy_first_file(queues: Path) -> None:
    name = f"{0:020d}"
    shutil.copyfile(queues / "orders/0" / name, queues / "orders/1" / name)


def copy_last_file(queues: Path) -> None:
    last = sorted((queues / "orders/0").iterdir())[-1]
    shutil.copyfile(last, queues / "bills/1" / last.name)


def swap_files_of_one_queue(queues: Path) -> None:
    first, second = sorted((queues / "orders/0").iterdir())[:2]
    swap(first, second)


HARMS: tuple[Harm, ...] = (
    *(swap_queues, swap_queues_of_topics, swap_topics, copy_queue, rename_queue, rename_topic),
    *(copy_first_file, copy_last_file, swap_files_of_one_queue),
)
each_harm = pytest.mark.parametrize("harm", HARMS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture
def store(whole: KnownStore, tmp_path: Path) -> KnownStore:
    return KnownStore(Path(shutil.copytree(whole.path, tmp_path / "store")), whole.puts)


def bodies(store: KnownStore) -> dict[Slot, bytes]:
    return {slot: put.body for slot, put in store.puts.items()}


def damage(path: Path) -> list[str]:
    return [str(one) for one in verify_store(path, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE]


def rebuilt(store: KnownStore) -> tuple[Path, LossAccount]:
    return store.path, rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).account


def salvaged(store: KnownStore) -> tuple[Path, LossAccount]:
    out = store.path.with_name("out")
    return out, salvage_store(store.path, out, SMALL, given=GEOMETRY_KEYS).account


both = pytest.mark.parametrize("tool", [rebuilt, salvaged])


@both
@each_harm
def test_message_stays_in_queue_named_by_its_record(
    tool: Callable[[KnownStore], tuple[Path, LossAccount]], harm: Harm, store: KnownStore
) -> None:
    harm(store.path / "consumequeue")
    out, account = tool(store)
    assert read_back(out) == bodies(store)
    assert account.misfiled
    account.misfiled.clear()
    assert account.is_compared  # a file that a copy took the place of is named, and is no loss
    assert account == LossAccount(not_compared=account.not_compared)
    assert damage(out) == []
    assert len(list((out / "consumequeue").glob("*/*"))) == 6
    assert {path.name for path in (out / "consumequeue").iterdir()} == {"orders", "bills"}


@each_harm
def test_export_of_misfiled_queues_reports_no_loss_or_repair(harm: Harm, store: KnownStore, tmp_path: Path) -> None:
    harm(store.path / "consumequeue")
    report = export_store(store.path, tmp_path / "out", config=SMALL, given=GEOMETRY_KEYS, kind=ExportFormat.JSONL)
    assert (sum(report.topics.values()), report.account.message_count, report.account.repaired) == (
        len(store.puts),
        0,
        [],
    )
    assert report.account.misfiled


@both
def test_losses_known_from_misfiled_queue_are_named_under_real_queue(
    tool: Callable[[KnownStore], tuple[Path, LossAccount]], store: KnownStore
) -> None:
    """The last log file is gone, and the queues that say what was in it are swapped."""
    last = store.log_files[-1]
    last.unlink()
    swap_queues(store.path / "consumequeue")
    out, account = tool(store)
    lost = assert_told(store, read_back(out), account)
    assert lost == store.victims(int(last.name), int(last.name) + LOG_FILE)


@each_harm
def test_open_for_writing_with_misfiled_queues_is_refused_with_remedy(harm: Harm, store: KnownStore) -> None:
    harm(store.path / "consumequeue")
    before = {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}
    with pytest.raises(MisfiledQueueError, match=r"consumequeue/.*gantrymq store rebuild"):
        open_store(RealFileSystem(), store.path)
    assert {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()} == before


@each_harm
def test_reader_of_misfiled_queues_shows_own_queue_of_message_and_names_problem(harm: Harm, store: KnownStore) -> None:
    harm(store.path / "consumequeue")
    with StoreReader.open(store.path, SMALL, given=GEOMETRY_KEYS) as reader:
        assert [type(one) for one in reader.problems][:1] == [MisfiledQueueError]
        assert {(queue.topic, queue.queue_id) for queue in reader.consume_queues} == {slot[:2] for slot in store.puts}
    assert read_back(store.path) == bodies(store)


@pytest.mark.parametrize("harm", [swap_queues, swap_topics, rename_queue, rename_topic, swap_files_of_one_queue])
def test_view_of_queues_as_filed_equals_healthy_store(harm: Harm, whole: KnownStore, store: KnownStore) -> None:
    """Directories from the root of the file system on, also one that is there in the view alone."""
    harm(store.path / "consumequeue")
    paths = StorePaths(store.path)
    queues = FiledQueues(paths, log_files(RealFileSystem(), paths)[0])
    queues.find_misfiled(RealFileSystem())
    view = filed(RealFileSystem(), queues.filed_as)

    def is_own(path: Path) -> bool:
        """Not a directory that is left empty under a wrong name."""
        return (whole.path / path.relative_to(store.path)).exists()

    for directory in sorted(path for path in [whole.path, *whole.path.rglob("*")] if path.is_dir()):
        path = store.path / directory.relative_to(whole.path)
        listed = [(one.name, one.size_bytes, one.is_directory) for one in view.scan(path) if is_own(path / one.name)]
        expected = [(one.name, one.size_bytes, one.is_directory) for one in RealFileSystem().scan(directory)]
        assert listed == expected
        assert view.exists(path)
    for above in store.path.parents:
        assert "" not in {one.name for one in view.scan(above)}


@both
@pytest.mark.parametrize("size", [40, 100, 280])
def test_piece_of_file_of_other_queue_is_no_evidence(
    tool: Callable[[KnownStore], tuple[Path, LossAccount]], size: int, store: KnownStore
) -> None:
    source, target = (sorted((store.path / "consumequeue" / name).iterdir())[-1] for name in ("orders/0", "bills/5"))
    raw = bytearray(target.read_bytes())
    raw[60 : 60 + size] = source.read_bytes()[:size]
    target.write_bytes(raw)
    out, account = tool(store)
    assert assert_told(store, read_back(out), account) == set()


@both
def test_topic_directory_of_other_store_has_no_messages(
    tool: Callable[[KnownStore], tuple[Path, LossAccount]], store: KnownStore, tmp_path: Path
) -> None:
    other = KnownStore.make(tmp_path / "other", messages=200)
    for number, path in enumerate(sorted((other.path / "consumequeue/orders").glob("*/*"))):
        raw = bytearray(path.read_bytes())
        for at in range(7, len(raw), 20):
            raw[at] ^= (number % 3) + 4  # places of another log, at which no record of this one begins
        path.write_bytes(raw)
    shutil.copytree(other.path / "consumequeue/orders", store.path / "consumequeue/foreign")
    out, account = tool(store)
    assert read_back(out) == bodies(store)
    assert account.messages == []
    assert [str(one.path.relative_to(store.path)) for one in account.misfiled] == [
        f"consumequeue/foreign/{number}" for number in (0, 1, 5)
    ]
    assert damage(out) == []


@pytest.mark.parametrize("what", ["directory", "pipe"])
def test_directory_or_pipe_named_as_queue_file_is_reported_as_damage(what: str, store: KnownStore) -> None:
    path = min((store.path / "consumequeue/orders/0").iterdir())
    path.unlink()
    path.mkdir() if what == "directory" else os.mkfifo(path)
    texts = [one.text for one in verify_store(store.path, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE]
    assert any(
        "has the name of a file of the queue; move it away, then `gantrymq store rebuild`" in one for one in texts
    )
    path.rmdir() if what == "directory" else path.unlink()
    assert rebuilt(store)[1].is_empty
    assert damage(store.path) == []
