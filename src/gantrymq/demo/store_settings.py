"""The settings of the demo's store, as the text of a ``broker.conf``: small files, so that many of them roll."""

from __future__ import annotations

from pathlib import Path

from gantrymq.config.properties import parse_properties, read_settings
from gantrymq.config.settings import MessageStoreConfig

BROKER_CONF = """\
# The store of `gantrymq demo`. RocketMQ's own keys: the Java broker opens the store with this file.
# Files are small, so that 336,776 messages fill several of each kind.
mappedFileSizeCommitLog=33554432
mappedFileSizeConsumeQueue=200000
maxHashSlotNum=100000
maxIndexNum=400000
flushDiskType=ASYNC_FLUSH
"""


def write_conf(path: Path) -> None:
    """Leave the settings at ``path``, for whoever opens the store later."""
    path.write_text(BROKER_CONF, "utf-8")


def read_conf(path: Path) -> MessageStoreConfig:
    """The settings in the file at ``path``; raises ConfigError."""
    return read_settings(parse_properties(path.read_text("utf-8"))).config
