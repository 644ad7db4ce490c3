"""The options of a write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gantrymq.config.properties import read_settings
from gantrymq.config.refused_keys import Work
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError
from gantrymq.spark import option_texts as texts
from gantrymq.spark.option_texts import TlsSettings, is_tls_option, tls_settings
from gantrymq.spark.options import KAFKAS, report_idle
from gantrymq.tools.locations import Location, location_of

_LOGGER = logging.getLogger(__name__)
_STORE_KEY = "store."
_SPARKS_OWN = frozenset(("checkpointlocation", "queryname"))
# Settings that act only while a store stays open, as in a broker: retention, and delivery of delayed messages.
_HOUSEKEEPING = (
    "fileReservedTime deleteWhen diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio "
    "cleanFileForciblyEnable cleanResourceInterval deleteCommitLogFilesInterval destroyMapedFileIntervalForcibly "
    "redeleteHangedFileInterval deleteFileBatchMax flushDelayOffsetInterval"
).split()
_STORE_KEYS = {spec.metadata["key"].lower(): spec.metadata["key"] for spec in fields(MessageStoreConfig)}
_OF_PATHS = {"txn_app_id": "txnAppId", "txn_version": "txnVersion"}
_OF_CLUSTERS = {
    "producer_group": "producerGroup",
    "send_msg_timeout_ms": "sendMsgTimeout",
    "retry_times_when_send_failed": "retryTimesWhenSendFailed",
    "namespace": "namespace",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options; picklable. docs/spark.md describes each one. None means not given."""

    path: Path | None = None
    nameserver: str | None = None
    topic: str | None = None
    queue_num: int = 4
    txn_app_id: str | None = None
    txn_version: int | None = None
    namespace: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    tls: TlsSettings = ()
    producer_group: str = "GANTRYMQ_SPARK"
    send_msg_timeout_ms: int = 3000
    retry_times_when_send_failed: int = 10
    store_keys: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse Spark's options, whose names ignore case. Raises ConfigError."""
        values: dict[str, Any] = {}
        store_keys: list[tuple[str, str]] = []
        for name, text in options.items():
            lower = name.lower()
            if lower in _SPARKS_OWN or is_tls_option(lower):
                continue
            if lower.startswith(_STORE_KEY):
                store_keys.append((_store_key(name, text), text))
                continue
            if lower not in _OPTIONS:
                near = KAFKAS.get(lower) or [_OPTIONS[near][0] for near in get_close_matches(lower, list(_OPTIONS), 3)]
                known = near or [shown for shown, _, _ in _TABLE]
                raise texts.unknown(name, text, f"no such option of a write; there is {', '.join(known)}")
            shown, attribute, read = _OPTIONS[lower]
            values[attribute] = read(shown, text)
        if ("path" in values) == ("nameserver" in values):
            raise ConfigError("path", str(values.get("path", "")), "either path (a store) or nameserver (host:port)")
        values["tls"] = tls_settings(options)
        _check_origin(values, store_keys)
        if ("txn_app_id" in values) != ("txn_version" in values):
            raise ConfigError("txnAppId", values.get("txn_app_id", ""), "txnAppId and txnVersion are given together")
        given = {key: (f"{_STORE_KEY}{key}", text) for key, text in store_keys}
        report_idle(given, _HOUSEKEEPING, "a sink deletes no messages and delivers none that are delayed")
        return cls(**values, store_keys=tuple(store_keys))

    def store_settings(self) -> tuple[MessageStoreConfig, frozenset[str]]:
        """The given settings of the store, and their keys.

        Raises NotHonouredError for a key that says that the store has another form.
        """
        reading = read_settings(dict(self.store_keys))
        reading.require_honoured(Work.APPEND)
        return reading.config, reading.given


def _check_origin(values: dict[str, Any], store_keys: list[tuple[str, str]]) -> None:
    """Raise ConfigError for a store's option on a cluster, or a cluster's option on a store."""
    there, other = ("nameserver", "path") if "nameserver" in values else ("path", "nameserver")
    for attribute, shown in (_OF_PATHS if there == "nameserver" else _OF_CLUSTERS).items():
        if attribute in values:
            raise ConfigError(shown, values[attribute], f"only with {other}, and here is {there}")
    if there == "path" and values["tls"]:
        raise ConfigError(values["tls"][0][0], "…", "only with nameserver: files need no TLS")
    if there == "nameserver" and store_keys:
        raise ConfigError(f"{_STORE_KEY}{store_keys[0][0]}", store_keys[0][1], "only with path: brokers have their own")
    if ("access_key" in values) != ("secret_key" in values):
        raise ConfigError("accessKey", "…", "accessKey and secretKey are given together or not at all")
    if there == "path" and "access_key" in values:
        _LOGGER.warning("the options accessKey and secretKey are ignored: they are for a nameserver")


def _store_key(name: str, text: str) -> str:
    key: str | None = _STORE_KEYS.get(name[len(_STORE_KEY) :].lower())
    if key is None:
        near = [
            _STORE_KEYS[near_key]
            for near_key in get_close_matches(name[len(_STORE_KEY) :].lower(), list(_STORE_KEYS), 3)
        ]
        allowed = f"store. and a key of a broker.conf, such as {', '.join(near) or 'flushDiskType'}"
        raise texts.unknown(name, text, allowed)
    read_settings({key: text})
    return key


def _local(name: str, text: str) -> Path:
    # A URI is refused without opening its file system.
    location = location_of(text) if text.strip() and ("://" not in text or text.startswith("file:")) else None
    if not isinstance(location, Location) or location.uri is not None:
        raise ConfigError(name, text, "the directory of one store, which the driver and every executor see as local")
    return Path(location.path)


# Option, field, and the parser of its text.
_TABLE: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("path", "path", _local),
    ("nameserver", "nameserver", texts.addresses),
    ("topic", "topic", texts.plain),
    ("queueNum", "queue_num", texts.count),
    ("txnAppId", "txn_app_id", texts.writer),
    ("txnVersion", "txn_version", texts.number),
    ("namespace", "namespace", texts.plain),
    ("accessKey", "access_key", texts.plain),
    ("secretKey", "secret_key", texts.plain),
    ("producerGroup", "producer_group", texts.plain),
    ("sendMsgTimeout", "send_msg_timeout_ms", texts.count),
    ("retryTimesWhenSendFailed", "retry_times_when_send_failed", texts.number),
)
_OPTIONS = {option.lower(): (option, attribute, read) for option, attribute, read in _TABLE}
