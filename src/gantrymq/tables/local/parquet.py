"""Parquet files in directories, of which a manifest says what they are.

The manifest with the highest number is the truth: it has the state and the names of all files. A commit writes its
files under hidden names, links the next manifest to its name, which fails if another process was quicker, and then
renames the files. A reader of ``*.parquet`` so sees no file before its commit. After a kill the next landing finishes
the renames.

A new landing removes files of commits that never took place, also beside the table. A process that wrote them may only
be frozen, so a manifest of the table without new files is committed first, and that process fails at its own commit.

Thread rule: one thread.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from gantrymq.errors import ConfigError
from gantrymq.tables.engine import Head
from gantrymq.tables.errors import AnotherLanderError, ForeignTableError, TableError
from gantrymq.tables.local.contents import Rewrite
from gantrymq.tables.local.directory import Directory, sync_directory
from gantrymq.tables.local.hive_files import HiveFiles
from gantrymq.tables.local.parquet_contents import STATES, UNLINKED, ParquetContents
from gantrymq.tables.partitions import Partition, PartitionBy
from gantrymq.tables.state import TableFile, TableState

_STAGED = ".staged"
_MANIFEST = re.compile(r"manifest-(\d{20})\.json")
_OURS = re.compile(r"part-\d{8,}-[0-9a-f]{32}\.parquet")
_KEPT_MANIFESTS = 8


class _StagedFiles(HiveFiles):
    """Files have hidden names before their commit."""

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing, under its hidden name."""
        return super().open(_staged(path))

    def remove(self, path: str) -> None:
        """Remove a file that was not committed."""
        super().remove(_staged(path))

    def paths_named(self, prefix: str, partitions: Sequence[Partition] | None) -> Iterator[str]:
        """The paths of files that are hidden, as they would be called after their commit."""
        return map(_unstaged, super().paths_named(f".{prefix}", partitions))


class ParquetFormatTable:
    """Implements :class:`gantrymq.tables.local.format_table.FormatTable` for a local directory."""

    def __init__(self, directory: Directory) -> None:
        """Raise ConfigError for a URI: only a local file system has links."""
        if not directory.is_local:
            raise ConfigError("--format", "parquet", "a local directory; delta and iceberg take a URI")
        self._directory = directory
        self._root = Path(directory.uri)
        self._files: dict[str, TableFile] = {}

    @property
    def name(self) -> str:
        """The path."""
        return self._directory.text

    def head(self) -> Head | None:
        """The table now."""
        number = max(self._manifests(), default=0)
        if number == 0:
            others = [name for name in self._directory.names() or () if name != STATES]
            if others:
                raise ForeignTableError(self.name, f"is a directory with other files ({others[0]})")
            return None
        try:
            document = json.loads((self._root / STATES / _manifest(number)).read_bytes())
            state = TableState.from_json(self.name, json.dumps(document["state"]))
            self._files = {file["path"]: TableFile.from_json(file) for file in document["files"]}
        except FileNotFoundError:  # another process has just forgotten it
            return self.head()
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(self.name, f"{STATES}/{_manifest(number)} cannot be read: {error}") from error
        return Head(state, number)

    def create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Head:
        """Make the directory with an empty manifest."""
        (self._root / STATES).mkdir(parents=True, exist_ok=True)
        self._files = {}
        return self._commit(0, [], state)

    def evolved(self, schema: pa.Schema) -> pa.Schema:
        """Each file has the columns of its rows."""
        return schema

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns as they are."""
        return schema

    def files(self) -> _StagedFiles:
        """Files lie in the directory of their partition, under hidden names before their commit."""
        return _StagedFiles(self._directory)

    def commit(self, head: Head, files: Sequence[TableFile], state: TableState, rewrite: Rewrite | None = None) -> Head:
        """Add the files, remove those of ``rewrite``, and set the state.

        A reader of ``*.parquet`` sees rows twice between the renames and the removal, which follow each other at once.
        """
        removed: list[str] = []
        if rewrite is not None:
            removed = list(self._files) if rewrite.removed is None else [file.path for file in rewrite.removed]
        after = self._commit(head.version, files, state, removed)
        self._publish(files)
        self.discard(removed)
        self._forget(after.version)
        return after

    def _commit(self, number: int, files: Sequence[TableFile], state: TableState, removed: Sequence[str] = ()) -> Head:
        """Link the manifest after ``number``."""
        every = {**self._files, **{file.path: file for file in files}}
        for path in removed:
            del every[path]
        document = {"state": json.loads(state.to_json()), "files": [asdict(file) for file in every.values()]}
        # A name of its own: one that a killed process left is a link to its manifest, which a write would truncate.
        written = f"{STATES}/.{state.commit_id}-{secrets.token_hex(8)}{UNLINKED}"
        self._directory.write(written, json.dumps(document, separators=(",", ":")).encode())
        try:
            os.link(self._root / written, self._root / STATES / _manifest(number + 1))
        except FileExistsError:
            raise AnotherLanderError(self.name) from None
        finally:
            self._directory.remove(written)
        sync_directory(self._root / STATES)
        self._files = every
        return Head(state, number + 1)

    def _publish(self, files: Sequence[TableFile]) -> None:
        """Rename committed files from their hidden names."""
        for file in files:
            with suppress(FileNotFoundError):  # renamed before a kill
                os.rename(self._root / _staged(file.path), self._root / file.path)
        for directory in {(self._root / file.path).parent for file in files}:
            sync_directory(directory)

    def leftovers(self) -> list[str]:
        """Finish the renames of the last commit; returns the files of commits that never took place."""
        self._publish([file for file in self._files.values() if (self._root / _staged(file.path)).exists()])
        return [path for path in self._parquet_paths() if path not in self._files]

    def _parquet_paths(self) -> Iterator[str]:
        """The paths of files that a commit has or should have had."""
        for path in self._root.rglob(f"*.parquet{_STAGED}"):
            yield _unstaged(str(path.relative_to(self._root)))
        for path in self._root.rglob("*.parquet"):
            if _OURS.fullmatch(path.name):
                yield str(path.relative_to(self._root))

    def fence(self, head: Head) -> Head:
        """Link a manifest without new files."""
        return self._commit(head.version, [], replace(head.state, pending={}, replaced=()))

    def discard(self, leftovers: Sequence[str]) -> None:
        """Remove the files, under both of their names."""
        for path in leftovers:
            self._directory.remove(path)
            self._directory.remove(_staged(path))

    def _manifests(self) -> list[int]:
        names = self._directory.below(STATES)
        return sorted(int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match is not None)

    def _forget(self, newest: int) -> None:
        for number in self._manifests():
            if number <= newest - _KEPT_MANIFESTS:
                self._directory.remove(f"{STATES}/{_manifest(number)}")

    def contents(self, head: Head) -> ParquetContents:
        """The files of the manifest of ``head``."""
        current = self.head()
        if current is None or current.version != head.version:
            raise AnotherLanderError(self.name)
        return ParquetContents(self._directory, list(self._files.values()))

    def beside(self, suffix: str) -> ParquetFormatTable:
        """The table of that suffix."""
        return ParquetFormatTable(self._directory.beside(suffix))

    def count_files(self) -> int:
        """The number of its data files."""
        self.head()
        return len(self._files)


def _manifest(number: int) -> str:
    return f"manifest-{number:020d}.json"


def _staged(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}{_STAGED}"


def _unstaged(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}{name.removeprefix('.').removesuffix(_STAGED)}"
