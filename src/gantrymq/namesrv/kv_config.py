"""Keys and values by namespace, kept in ``kvConfig.json``: who has ordered topics, and whatever tools put there.

Source: KVConfigManager, KVConfigSerializeWrapper.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from msgspec import field

from gantrymq.errors import StoreError, UnusableFileError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.remoting.bodies.topic import KVTable
from gantrymq.remoting.body import Body, decode_body

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]


class KVConfigSerializeWrapper(Body, kw_only=True):
    """What the file holds."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KVConfigManager:
    """The table and its file. A change counts, and can be read, once it is on the disk; if it cannot be, not at all.

    Thread rule: the event loop's thread.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file, self._path = ReplacedFile(fs, path), path
        self._table: Table = {}
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Read the file, or what stood in it before; raises StoreError where it holds something else."""
        try:
            kept = self._file.load(partial(decode_body, KVConfigSerializeWrapper))
        except UnusableFileError as error:
            raise StoreError(self._path, "is no kvConfig.json; move it away to begin anew") from error
        self._table = kept.config_table if kept is not None else {}

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> KVTable | None:
        """All of a namespace; None where nothing was ever put there."""
        table = self._table.get(namespace)
        return KVTable(table=dict(table)) if table is not None else None

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; returns when that is durable. Raises OSError or DiskFullError: the old one stays."""
        async with self._writing:
            await self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    async def delete(self, namespace: str, key: str) -> None:
        """Take a value away; its namespace stays, as in RocketMQ. Raises as :meth:`put` does."""
        async with self._writing:
            table = self._table.get(namespace, {})
            if key in table:
                await self._replace(namespace, {one: value for one, value in table.items() if one != key})

    async def _replace(self, namespace: str, changed: dict[str, str]) -> None:
        table = {**self._table, namespace: changed}
        raw = KVConfigSerializeWrapper(config_table=table).encode()
        await asyncio.get_running_loop().run_in_executor(None, self._file.replace, raw)
        self._table = table
