"""The broker's tables on disk, under ``config/``. A changed table is written as a whole.

The table is copied on the event loop and written by a thread, so that no request waits for the disk. Tools that check a
store without a broker use the same decoders as the broker's start.

Source: ConfigManager, BrokerPathConfigHelper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.consumer_order_info import ConsumerOrderInfo
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.broker.tables.request_modes import MessageRequestModeManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import SystemClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import GantrymqError, StoreError, UnusableFileError
from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.fs.api import FileSystem
from gantrymq.logs import get_logger
from gantrymq.store.config_files import ConfigFile, table_problems

TOPICS = "topics.json"
SUBSCRIPTION_GROUP = "subscriptionGroup.json"
TRANSACTION_METRICS = "transactionMetrics"
CONSUMER_FILTER = "consumerFilter.json"
CONSUMER_ORDER_INFO = "consumerOrderInfo.json"
MESSAGE_REQUEST_MODE = "messageRequestMode.json"

log = get_logger("gantrymq.broker")


class Table(Protocol):
    """A table that is saved."""

    @property
    def edits(self) -> int:
        """A number that changes with the table."""
        ...

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the file's content from the current table. It may run later, and on another thread."""
        ...

    def load(self, value: dict[str, Any]) -> None:
        """Load the file's content."""
        ...


class KeptTable(NamedTuple):
    """A table and the name of its file. A start with a damaged file of a table ``is_dispensable`` begins without it."""

    name: str
    table: Table
    is_dispensable: bool = False


class ConfigPersistence:
    """Loads and saves tables under ``directory``. Thread rule: the event loop's thread."""

    def __init__(self, fs: FileSystem, directory: Path, tables: Sequence[KeptTable]) -> None:
        self._files = {table.name: ConfigFile(fs, directory / table.name) for table in tables}
        self._tables = {table.name: table.table for table in tables}
        self._dispensable = {table.name for table in tables if table.is_dispensable}
        self._saved = {table.name: table.table.edits for table in tables}
        self._writer = ThreadPoolExecutor(1, "ConfigPersistence")
        self._locks = {table.name: asyncio.Lock() for table in tables}

    def load(self) -> None:
        """Read every file, or its previous version if it is missing or blank.

        Raises StoreError if a file does not contain its table. A start with the previous or an empty table would
        overwrite the operator's edits at the next save.
        """
        for name, file in self._files.items():
            try:
                _load(self._tables[name], file)
            except StoreError as error:
                if name not in self._dispensable:
                    raise
                log.warning("a configuration file cannot be used, and the broker starts without it", reason=str(error))

    def is_saved(self, name: str) -> bool:
        """Whether the file has the current table."""
        return self._saved[name] == self._tables[name].edits

    async def save(self, name: str) -> None:
        """Write the file if the table has changed. Returns when the file is durable. Raises DiskFullError."""
        async with self._locks[name]:
            table = self._tables[name]
            edits = table.edits
            if self._saved[name] == edits:
                return
            save = partial(_save, self._files[name], table.snapshot())
            await asyncio.get_running_loop().run_in_executor(self._writer, save)
            self._saved[name] = edits

    async def save_all(self) -> None:
        """Write every changed file. A failure is logged, and retried by the next call."""
        for name in self._files:
            try:
                await self.save(name)
            except (OSError, GantrymqError) as error:
                log.error("a configuration file cannot be written", file=name, reason=str(error))
            # Whatever the error is, the other tables are saved, and a broker that ends closes its store.
            except Exception:
                log.exception("a configuration file cannot be written", file=name)

    def close(self) -> None:
        """End the writing thread. Save first."""
        self._writer.shutdown()


def _save(file: ConfigFile, make: Callable[[], dict[str, Any]]) -> None:
    file.save(make())


def _load(table: Table, file: ConfigFile) -> None:
    def use(value: dict[str, Any]) -> None:
        if value:
            table.load(value)
            problems = list(table_problems(file.path.name, value))
            if problems:
                more = len(problems) - 1
                log.warning(
                    "a configuration file has an impossible value",
                    file=file.path.name,
                    first=str(problems[0]),
                    more=more,
                )

    try:
        file.read(use, keeps_edits=True)
    except UnusableFileError as error:
        older = f" to start with {file.path.name}.bak" if file.has_backup else ""
        advice = f"correct it, or move it away{older}"
        raise StoreError(file.path, f"does not contain its table ({error.reason}); {advice}") from error
    if file.refused:
        log.error(
            "a configuration file cannot be used: its .bak is used, if there is one",
            file=file.path.name,
            reason=file.refused,
        )


TableDecoders = dict[str, Callable[[dict[str, Any]], None]]


def table_decoders() -> TableDecoders:
    """The function that loads each table, by file name. It raises ValueError or GantrymqError for a wrong shape."""
    config, clock = LiveConfig(), SystemClock()
    return {
        TOPICS: TopicConfigManager(config, clock).load,
        SUBSCRIPTION_GROUP: SubscriptionGroupManager(config, clock).load,
        CONSUMER_OFFSET: ConsumerOffsetManager(config, clock).load,
        CONSUMER_FILTER: ConsumerFilterManager(config, clock).load,
        CONSUMER_ORDER_INFO: ConsumerOrderInfo(clock).load,
        MESSAGE_REQUEST_MODE: MessageRequestModeManager().load,
    }
