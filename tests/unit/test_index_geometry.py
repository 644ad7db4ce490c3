"""How the geometry of index files is found."""

from pathlib import Path

import pytest

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import AmbiguousGeometryError
from gantrymq.format.index import file_size
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.geometry import find_index_geometry
from gantrymq.store.paths import StorePaths
from store_cases import SMALL


def empty_index_file(root: Path, config: MessageStoreConfig) -> StorePaths:
    paths = StorePaths(root)
    paths.index.mkdir(parents=True)
    with (paths.index / "20261121070346782").open("wb") as file:
        file.truncate(file_size(config.max_hash_slot_num, config.max_index_num))
    return paths


@pytest.mark.parametrize("config", [MessageStoreConfig(), SMALL])
def test_a_file_that_a_kill_left_empty_has_the_configured_geometry(tmp_path: Path, config: MessageStoreConfig) -> None:
    paths = empty_index_file(tmp_path, config)
    assert find_index_geometry(RealFileSystem(), paths, config, ()) == config


def test_an_empty_file_of_another_length_is_ambiguous(tmp_path: Path) -> None:
    paths = empty_index_file(tmp_path, SMALL)
    with pytest.raises(AmbiguousGeometryError, match="--set maxHashSlotNum=… --set maxIndexNum=…"):
        find_index_geometry(RealFileSystem(), paths, MessageStoreConfig(), ())
