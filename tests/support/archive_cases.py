"""What the tests of archives share: an archiver of a small store, and what a copy of its archive says."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from gantrymq.archive.archiver import Archiver
from gantrymq.archive.copies import check_archive, read_summary
from gantrymq.archive.source import ArchiveSource
from gantrymq.archive.summary import ArchivedFile, ArchiveSummary
from gantrymq.archive.target import ArchiveTarget, open_target
from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.real import RealFileSystem
from gantrymq.tools.findings import Finding, Severity
from gantrymq.tools.read.store_source import StoreSource
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL


def target_at(path: Path) -> ArchiveTarget:
    """A directory as the place of an archive."""
    return open_target(str(path), RealFileSystem())


def archiver(
    store: Path,
    target: ArchiveTarget,
    key: bytes | None = None,
    config: MessageStoreConfig = SMALL,
    given: Collection[str] = GEOMETRY_KEYS,
) -> Archiver:
    """An archiver that has not begun."""
    source = ArchiveSource(StoreSource(RealFileSystem(), store, config, given))
    return Archiver(source, target, SystemClock(), key)


def archive(
    store: Path,
    place: Path | ArchiveTarget,
    key: bytes | None = None,
    config: MessageStoreConfig = SMALL,
    given: Collection[str] = GEOMETRY_KEYS,
) -> ArchiveSummary:
    """Archive everything that is whole."""
    target = target_at(place) if isinstance(place, Path) else place
    with archiver(store, target, key, config, given) as work:
        while not work.run_round().is_last:
            pass
        return work.summary


def damage(store: Path) -> list[Finding]:
    """What is damaged in a store."""
    return [finding for finding in verify_store(store) if finding.level is Severity.DAMAGE]


def findings(store: Path) -> list[Finding]:
    """Every finding in a store, notes too."""
    return list(verify_store(store))


def wrong_files(place: Path, key: bytes | None = None) -> list[tuple[str, str]]:
    """The files of an archive that differ from its summary."""
    target = target_at(place)
    return list(check_archive(target, read_summary(target, key), None))


def copy_of(place: Path, to: Path) -> Path:
    """A plain copy of a directory, in place of an older one."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(place, to))


class Killed(BaseException):
    """The process was killed here."""


class KilledTarget:
    """A place whose writer is killed before its ``left``-th change; what was changed before stays."""

    def __init__(self, inner: ArchiveTarget, left: int) -> None:
        self._inner, self.left = inner, left
        self.text = inner.text
        self.sizes, self.claim, self.require_claim = inner.sizes, inner.claim, inner.require_claim
        self.open, self.release = inner.open, inner.release

    def put(self, name: str, chunks: Iterable[bytes]) -> ArchivedFile:
        self._count()
        return self._inner.put(name, chunks)

    def remove(self, name: str) -> None:
        self._count()
        self._inner.remove(name)

    def _count(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1
