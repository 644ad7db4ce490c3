"""A reader beside a writer whose retention removes files: what went counts as gone."""

from pathlib import Path

import pytest

from gantrymq.fs.real import RealFileSystem
from gantrymq.store import reader
from gantrymq.store.opening import LoadedStore, load_parts
from gantrymq.store.paths import StorePaths
from gantrymq.tools.export_plan import ExportSelection, StoreSurvey, plan_export
from gantrymq.tools.read.intact_records import IntactRecords
from store_cases import BARE, numbered, open_reader, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(RealFileSystem(), path=tmp_path / "store", config=BARE) as store:
        store.put_batch(numbered(400))
    return tmp_path / "store"


def first_file(directory: Path) -> Path:
    return min(directory.iterdir())


def test_reader_loses_only_messages_of_deleted_file(path: Path) -> None:
    with open_reader(path) as opened:
        first_file(path / "commitlog").unlink()
        assert opened.message_at(0) is None
        there = [message.queue_offset for message in opened.messages()]
        assert there == list(range(there[0], 400))
        assert opened.get("orders", 0, 0).messages[0].queue_offset == opened.offset_at("orders", 0, 0) == there[0] > 0


def test_reader_skips_units_of_deleted_file(path: Path) -> None:
    with open_reader(path) as opened:
        first_file(path / "consumequeue/orders/0").unlink()
        assert opened.get("orders", 0, 0).messages == []
        assert opened.get("orders", 0, 20).messages[0].queue_offset == 20


def test_reader_opens_while_file_is_deleted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had been listed, and was gone when the reader came to read it: the reader looks once more."""
    times = 0

    def and_then_it_goes(*arguments: object) -> LoadedStore:
        nonlocal times
        times += 1
        loaded = load_parts(*arguments)  # type: ignore[arg-type]
        if times == 1:
            for file in sorted((path / "commitlog").iterdir())[:-1]:
                file.unlink()

        return loaded

    StorePaths(path).checkpoint.unlink()
    StorePaths(path).abort.touch()
    monkeypatch.setattr(reader, "load_parts", and_then_it_goes)
    with open_reader(path) as opened:
        assert opened.min_phy_offset > 0
        assert next(opened.messages()).queue_offset > 0
    assert times == 2


def test_export_skips_files_deleted_by_retention(path: Path) -> None:
    plan = plan_export(StoreSurvey(RealFileSystem(), StorePaths(path), BARE, ()), ExportSelection(), decompress=True)
    plan.files[0].path.unlink()
    records = IntactRecords(RealFileSystem(), plan.files)
    assert 0 < sum(batch.count for batch in records) < 400
    assert [one for one in records.contents.lost() if one.start < plan.files[1].base] == []
