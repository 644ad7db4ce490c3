"""A store whose commit log lies elsewhere, in one directory or several, is read as any other."""

from dataclasses import replace
from pathlib import Path

import pytest
from spark_cases import Row, fields

from gantrymq.errors import ConfigError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.spark import RocketMQDataSource
from store_cases import SMALL, numbered, open_store

MESSAGES = 600


def make_store(path: Path, *directories: Path) -> str:
    """A store with its log in these directories; returns the setting that says so."""
    setting = ",".join(map(str, directories))
    with open_store(RealFileSystem(), path, replace(SMALL, store_path_commit_log=setting)) as store:
        store.put_batch(numbered(MESSAGES))
    return setting


def rows(path: Path, **options: str) -> list[Row]:
    reader = RocketMQDataSource({"path": str(path), **options}).reader(fields())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("where", ["store", "."])
@pytest.mark.parametrize("directories", [["log"], ["b", "a"]])
def test_log_is_read_where_broker_conf_says(tmp_path: Path, where: str, directories: list[str]) -> None:
    setting = make_store(tmp_path / "store", *(tmp_path / name for name in directories))
    with pytest.raises(StoreError, match=r"commitlog.*is missing.*store\.storePathCommitLog"):
        rows(tmp_path / "store")
    (tmp_path / where / "broker.conf").write_text(f"storePathCommitLog={setting}\n")
    found = rows(tmp_path / "store")
    assert len({(row["queue_id"], row["queue_offset"]) for row in found}) == MESSAGES


def test_log_is_read_where_option_says(tmp_path: Path) -> None:
    setting = make_store(tmp_path / "store", tmp_path / "a", tmp_path / "b")
    assert len(rows(tmp_path / "store", **{"store.storePathCommitLog": setting})) == MESSAGES
    make_store(tmp_path / "other" / "store", tmp_path / "c")
    with pytest.raises(ConfigError, match="only for one store"):
        rows(
            Path(f"{tmp_path}/store,{tmp_path}/other/store"),
            **{"store.storePathCommitLog": setting, "brokerName": "a,b"},
        )


def test_copied_store_reads_its_own_log(tmp_path: Path) -> None:
    make_store(tmp_path / "store", tmp_path / "store" / "commitlog")
    (tmp_path / "store" / "broker.conf").write_text(f"storePathCommitLog={tmp_path}/nowhere\n")
    assert len(rows(tmp_path / "store")) == MESSAGES
