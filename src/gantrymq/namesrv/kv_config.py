"""Keys and values by namespace, kept in ``kvConfig.json``: who has ordered topics, and whatever tools put there.

Source: KVConfigManager, KVConfigSerializeWrapper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import field

from gantrymq.errors import RemotingCommandError, StoreError, UnusableFileError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.remoting.bodies.topic import KVTable
from gantrymq.remoting.body import Body, decode_body

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
WIPED_BROKERS = "GANTRYMQ_WIPED_BROKERS"  # ours: the brokers without write permission

Table = dict[str, dict[str, str]]
_ENTRY_BYTES = 128  # what an entry takes beside its texts
_NO_LIMIT = 1 << 62


class KVConfigSerializeWrapper(Body, kw_only=True):
    """What the file holds."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KVConfigManager:
    """The table and its file. A change counts, and can be read, once it is on the disk; if it cannot be, not at all.

    Changes that come while the file is written share the next write. Keys, values and namespaces have ``max_bytes()``
    together. Thread rule: the event loop's thread.
    """

    def __init__(self, fs: FileSystem, path: Path, max_bytes: Callable[[], int] = lambda: _NO_LIMIT) -> None:
        self._file, self._path, self._max_bytes = ReplacedFile(fs, path), path, max_bytes
        self._table: Table = {}
        self._encoded: dict[str, bytes] = {}  # answers by namespace, until something changes
        self._waiting: list[_Change] = []
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the file, or what stood in it before; raises StoreError where it holds something else."""
        try:
            kept = self._file.load(partial(decode_body, KVConfigSerializeWrapper))
        except UnusableFileError as error:
            raise StoreError(self._path, "is no kvConfig.json; move it away to start with an empty one") from error
        self._table = kept.config_table if kept is not None else {}

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._table.get(namespace, {}).get(key)

    def keys(self, namespace: str) -> set[str]:
        """The keys of a namespace."""
        return set(self._table.get(namespace, ()))

    def encoded_namespace(self, namespace: str) -> bytes | None:
        """All of a namespace as a KVTable; None where nothing was ever put there."""
        table = self._table.get(namespace)
        if table is None:
            return None
        if namespace not in self._encoded:
            self._encoded[namespace] = KVTable(table=table).encode()
        return self._encoded[namespace]

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; returns when that is durable.

        Raises OSError or DiskFullError, RemotingCommandError where there would be too much: the old one stays.
        """
        await self._change(_Change(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Take a value away; its namespace stays, as in RocketMQ. Raises as :meth:`put` does."""
        if key in self._table.get(namespace, {}) or any(one.place == (namespace, key) for one in self._waiting):
            await self._change(_Change(namespace, key, None))

    async def _change(self, change: _Change) -> None:
        self._waiting.append(change)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
        try:
            await change.done
        finally:
            del change  # or its error, whose traceback has this frame, holds it in a cycle

    async def _write(self) -> None:
        while self._waiting:
            changes, self._waiting = self._waiting, []
            try:
                table, refused = self._changed(changes)
                if len(refused) < len(changes):
                    await asyncio.get_running_loop().run_in_executor(None, self._save, table)
            except BaseException as error:
                for change in changes:
                    change.fail(error)
                if not isinstance(error, Exception):
                    raise
                continue
            self._table, self._encoded = table, {}
            full = f"keys and values may have {self._max_bytes()} bytes together (maxKvConfigBytes)"
            for change in changes:
                if change in refused:
                    change.fail(RemotingCommandError(full))
                elif not change.done.done():
                    change.done.set_result(None)
        self._writing = None

    def _changed(self, changes: list[_Change]) -> tuple[Table, set[_Change]]:
        """The table with the changes, and those that there is no room for."""
        table, refused = {name: dict(of) for name, of in self._table.items()}, set[_Change]()
        size_bytes, most = _size_bytes(table), self._max_bytes()
        for change in changes:
            namespace, key = change.place
            old = table.get(namespace, {}).get(key)
            grown = len(change.value or "") - len(old or "")
            grown += _ENTRY_BYTES + len(namespace) + len(key) if old is None else 0
            if change.value is None:
                table.get(namespace, {}).pop(key, None)
            elif size_bytes + grown > most:
                refused.add(change)
            else:
                table.setdefault(namespace, {})[key] = change.value
                size_bytes += grown
        return table, refused

    def _save(self, table: Table) -> None:
        self._file.replace(KVConfigSerializeWrapper(config_table=table).encode())


class _Change:
    """A value to be set, or with None taken away; ``done`` when that is durable."""

    def __init__(self, namespace: str, key: str, value: str | None) -> None:
        self.place, self.value = (namespace, key), value
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """It could not be made."""
        if not self.done.done():
            self.done.set_exception(error)


def _size_bytes(table: Table) -> int:
    return sum(
        _ENTRY_BYTES + len(namespace) + len(key) + len(value)
        for namespace, of in table.items()
        for key, value in of.items()
    )
