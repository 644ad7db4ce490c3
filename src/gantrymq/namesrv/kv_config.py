"""Keys and values by namespace, stored in ``kvConfig.json``: the order configuration of topics, and values of tools.

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
WIPED_BROKERS = "GANTRYMQ_WIPED_BROKERS"  # not RocketMQ's: the brokers without write permission

Table = dict[str, dict[str, str]]
_ENTRY_BYTES = 128  # the memory of an entry beside its texts
_NO_LIMIT = 1 << 62


class KVConfigSerializeWrapper(Body, kw_only=True):
    """The content of the file."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KVConfigManager:
    """The table and its file. A change becomes visible once it is on disk; if the write fails, it is discarded.

    Changes during a write share the next write. ``max_bytes()`` limits all keys, values and namespaces together.

    Thread rule: the event loop's thread.
    """

    def __init__(self, fs: FileSystem, path: Path, max_bytes: Callable[[], int] = lambda: _NO_LIMIT) -> None:
        self._file, self._path, self._max_bytes = ReplacedFile(fs, path), path, max_bytes
        self._table: Table = {}
        self._encoded: dict[str, bytes] = {}  # cached answers by namespace, cleared by each change
        self._waiting: list[_Change] = []
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the file, or its previous version. Raises StoreError if it has another format."""
        try:
            stored = self._file.load(partial(decode_body, KVConfigSerializeWrapper))
        except UnusableFileError as error:
            raise StoreError(self._path, "is no kvConfig.json; move it away to start with an empty one") from error
        self._table = stored.config_table if stored is not None else {}

    def get(self, namespace: str, key: str) -> str | None:
        """The value of a key, or None."""
        return self._table.get(namespace, {}).get(key)

    def keys(self, namespace: str) -> set[str]:
        """The keys of a namespace."""
        return set(self._table.get(namespace, ()))

    def encoded_namespace(self, namespace: str) -> bytes | None:
        """All values of a namespace as a KVTable; None if it never had one."""
        table = self._table.get(namespace)
        if table is None:
            return None
        if namespace not in self._encoded:
            self._encoded[namespace] = KVTable(table=table).encode()
        return self._encoded[namespace]

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Returns when it is durable.

        Raises OSError or DiskFullError, or RemotingCommandError at the size limit; the old value then stays.
        """
        await self._change(_Change(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value. Its namespace stays, as in RocketMQ. Raises as :meth:`put` does."""
        if key in self._table.get(namespace, {}) or any(change.target == (namespace, key) for change in self._waiting):
            await self._change(_Change(namespace, key, None))

    async def _change(self, change: _Change) -> None:
        self._waiting.append(change)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
        try:
            await change.done
        finally:
            del change  # the error's traceback has this frame, which would keep the change in a reference cycle

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
        """The table with the changes, and the changes that exceed the size limit."""
        table, refused = {name: dict(of) for name, of in self._table.items()}, set[_Change]()
        size_bytes, max_bytes = _size_bytes(table), self._max_bytes()
        for change in changes:
            namespace, key = change.target
            old = table.get(namespace, {}).get(key)
            grown = len(change.value or "") - len(old or "")
            grown += _ENTRY_BYTES + len(namespace) + len(key) if old is None else 0
            if change.value is None:
                table.get(namespace, {}).pop(key, None)
            elif size_bytes + grown > max_bytes:
                refused.add(change)
            else:
                table.setdefault(namespace, {})[key] = change.value
                size_bytes += grown
        return table, refused

    def _save(self, table: Table) -> None:
        self._file.replace(KVConfigSerializeWrapper(config_table=table).encode())


class _Change:
    """A value to set, or to delete if it is None. ``done`` completes when the change is durable."""

    def __init__(self, namespace: str, key: str, value: str | None) -> None:
        self.target, self.value = (namespace, key), value
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: BaseException) -> None:
        """Report that the change failed."""
        if not self.done.done():
            self.done.set_exception(error)


def _size_bytes(table: Table) -> int:
    return sum(
        _ENTRY_BYTES + len(namespace) + len(key) + len(value)
        for namespace, of in table.items()
        for key, value in of.items()
    )
