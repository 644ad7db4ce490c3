"""Whether a store would take rows, found out before any of them is put: a batch goes in as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.spark.write_options import WriteOptions
from gantrymq.store.appendable import AppendableMessage
from gantrymq.store.batch_columns import of_table
from gantrymq.store.consume_queues import is_topic_storable
from gantrymq.store.geometry import find_file_sizes
from gantrymq.store.paths import StorePaths
from gantrymq.store.put_batch import messages_of

_HOST = Host.parse("127.0.0.1:10911")


def check_rows(options: WriteOptions, tables: Iterator[Any]) -> Iterator[Any]:
    """The tables as they come; raises ConfigError for the first row that the store would refuse."""
    config = _store_config(options)
    checked = 0
    for table in tables:
        if of_table(table, config) is None:
            _check_one_by_one(table, config, checked)
        checked += table.num_rows
        yield table


def _store_config(options: WriteOptions) -> MessageStoreConfig:
    assert options.path is not None
    config, given = options.store_settings()
    return find_file_sizes(RealFileSystem(), StorePaths.of(Path(options.path), config), config, given)


def _check_one_by_one(table: Any, config: MessageStoreConfig, first: int) -> None:
    for number, message in enumerate(messages_of(table)):
        status = AppendableMessage(message).check(config, _HOST)
        if status is not PutMessageStatus.PUT_OK:
            raise _refused(message, config, f"row {first + number} of the partition is {status.value}")


def _refused(message: Message, config: MessageStoreConfig, where: str) -> ConfigError:
    """The error that names the column which the store would not take."""
    if not is_topic_storable(message.topic):
        return ConfigError("column topic", message.topic, f"a name of a topic; {where}")
    if AppendableMessage(replace(message, body=b"")).check(config, _HOST) is PutMessageStatus.PUT_OK:
        allowed = f"at most maxMessageSize, and with all that goes along what a log file holds; {where}"
        return ConfigError("column body", f"{len(message.body)} bytes", allowed)
    shown = ", ".join(message.properties) or "tags, keys"
    allowed = "names and values without 0x01, 0x02 and 512 zero bytes in a row, together below 32 KiB and a log file"
    return ConfigError("column properties", shown, f"{allowed}; {where}")
