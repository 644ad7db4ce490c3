"""The settings of the demo's store as the text of a ``broker.conf``, and functions that open the store with them."""

from __future__ import annotations

from pathlib import Path

from gantrymq.clock import Clock
from gantrymq.config.properties import parse_properties, read_settings
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from gantrymq.store.recovery.recovery import Progress

BROKER_CONF = """\
# The store of the demo. RocketMQ's own keys: the Java broker opens the store with this file.
# Files are small, so that 336,776 messages fill several of each kind.
mappedFileSizeCommitLog=33554432
mappedFileSizeConsumeQueue=200000
maxHashSlotNum=100000
maxIndexNum=400000
flushDiskType=ASYNC_FLUSH
"""


def write_conf(path: Path) -> None:
    """Write the settings to ``path``, for this demo and for other programs."""
    path.write_text(BROKER_CONF, "utf-8")


def open_store(
    store: Path, conf: Path, *, create: bool = True, clock: Clock | None = None, progress: Progress | None = None
) -> MessageStore:
    """Open the store for writing with the settings in ``conf``. Raises ConfigError, and as ``MessageStore.open``."""
    config, given = _read(conf)
    return MessageStore.open(store, config, given=given, create=create, clock=clock, progress=progress)


def open_reader(store: Path, conf: Path) -> StoreReader:
    """Open the store for reading with the settings in ``conf``."""
    config, given = _read(conf)
    return StoreReader.open(store, config, given=given)


def _read(conf: Path) -> tuple[MessageStoreConfig, frozenset[str]]:
    """The settings, and the keys that the file gives.

    The given keys matter: an index file without entries, as a kill can leave it, does not show its own geometry.
    """
    reading = read_settings(parse_properties(conf.read_text("utf-8")))
    return reading.config, reading.given
