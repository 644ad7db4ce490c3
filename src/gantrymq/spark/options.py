"""The options of a read. Names are those of Spark's Kafka connector where it has the same option."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import Flag, auto
from typing import Any

from gantrymq.errors import ConfigError
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.spark import option_texts as texts
from gantrymq.spark.option_texts import EARLIEST, LATEST, Positions, Queues, TlsSettings, is_tls_option, tls_settings

_LOGGER = logging.getLogger(__name__)
# Options of Kafka's connector whose names are not similar to the ones here.
KAFKAS = {
    "kafka.bootstrap.servers": ["nameserver"],
    "kafka.sasl.jaas.config": ["accessKey", "secretKey"],
    "includeheaders": ["includeProperties"],
}
_ONE_OF = ("subscribe", "subscribe_pattern", "assign")


class Scope(Flag):
    """The reads in which an option has an effect. In others it is reported as ignored."""

    ANY = 0
    STREAM = auto()
    CLUSTER = auto()
    PATH = auto()


# Option, field, the parser of its text, and its scope: without the scope an option would be ignored in silence.
_TABLE: tuple[tuple[str, str, Callable[[str, str], Any], Scope], ...] = (
    ("path", "path", texts.paths, Scope.ANY),
    ("paths", "path", texts.paths, Scope.ANY),  # from load([…, …])
    ("nameserver", "nameserver", texts.addresses, Scope.ANY),
    ("subscribe", "subscribe", texts.names, Scope.ANY),
    ("topic", "subscribe", texts.names, Scope.ANY),
    ("subscribePattern", "subscribe_pattern", texts.pattern, Scope.ANY),
    ("assign", "assign", texts.parse_assign, Scope.ANY),
    ("startingOffsets", "starting_offsets", texts.offsets, Scope.ANY),
    ("endingOffsets", "ending_offsets", texts.offsets, Scope.ANY),
    ("startingTimestamp", "starting_timestamp_ms", texts.timestamp_ms, Scope.ANY),
    ("endingTimestamp", "ending_timestamp_ms", texts.timestamp_ms, Scope.ANY),
    ("startingOffsetsByTimestamp", "starting_offsets_by_timestamp", texts.timestamps, Scope.ANY),
    ("endingOffsetsByTimestamp", "ending_offsets_by_timestamp", texts.timestamps, Scope.ANY),
    (
        "startingOffsetsByTimestampStrategy",
        "starting_offsets_by_timestamp_strategy",
        lambda _, text: text.lower(),
        Scope.ANY,
    ),
    ("minPartitions", "min_partitions", texts.count, Scope.ANY),
    ("maxRecordsPerPartition", "max_records_per_partition", texts.count, Scope.ANY),
    ("maxOffsetsPerTrigger", "max_offsets_per_trigger", texts.count, Scope.STREAM),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", texts.size_bytes, Scope.STREAM),
    ("minOffsetsPerTrigger", "min_offsets_per_trigger", texts.count, Scope.STREAM),
    ("maxTriggerDelay", "max_trigger_delay_ms", texts.duration_ms, Scope.STREAM),
    ("failOnDataLoss", "fail_on_data_loss", texts.truth, Scope.ANY),
    ("onQueueReset", "on_queue_reset", texts.reset_policy, Scope.STREAM),
    ("retiredBrokers", "retired_brokers", texts.names, Scope.STREAM | Scope.PATH),
    ("store.storePathCommitLog", "store_path_commit_log", texts.names, Scope.PATH),
    ("tags", "tags", texts.tags, Scope.ANY),
    ("keys", "keys", texts.names, Scope.ANY),
    ("messageIndexEnable", "message_index_enable", texts.truth, Scope.PATH),
    ("columns", "columns", texts.names, Scope.ANY),
    ("includeProperties", "include_properties", texts.truth, Scope.ANY),
    ("decompress", "decompress", texts.truth, Scope.ANY),
    ("maxDecompressedBodySize", "max_decompressed_body_size", texts.count, Scope.ANY),
    ("verifyCRC", "verify_crc", texts.truth, Scope.ANY),
    ("namespace", "namespace", texts.plain, Scope.ANY),
    ("accessKey", "access_key", texts.plain, Scope.CLUSTER),
    ("secretKey", "secret_key", texts.plain, Scope.CLUSTER),
    ("brokerName", "broker_name", texts.names, Scope.ANY),
    ("filterPushdown", "filter_pushdown", texts.truth, Scope.ANY),
    ("pending", "pending", texts.truth, Scope.ANY),
)
_OF: dict[Scope, tuple[str, ...]] = {
    scope: tuple(dict.fromkeys(field for _, field, _, only in _TABLE if scope in only)) for scope in Scope
}
_NAMES = [option for option, _, _, _ in _TABLE if option != "paths"]
_OPTIONS = {option.lower(): (option, field, read) for option, field, read, _ in _TABLE}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options; picklable. docs/spark.md describes each one. None means not given."""

    path: tuple[str, ...] = ()
    nameserver: str | None = None
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: Queues | None = None
    starting_offsets: str | Positions | None = None
    ending_offsets: str | Positions | None = None
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    starting_offsets_by_timestamp: Positions | None = None
    ending_offsets_by_timestamp: Positions | None = None
    starting_offsets_by_timestamp_strategy: str = "error"
    min_partitions: int = 0
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    fail_on_data_loss: bool = True
    on_queue_reset: str | None = None
    retired_brokers: tuple[str, ...] = ()
    store_path_commit_log: tuple[str, ...] = ()
    tags: str | None = None
    keys: tuple[str, ...] | None = None
    message_index_enable: bool = True
    columns: tuple[str, ...] | None = None
    include_properties: bool | None = None
    decompress: bool = True
    max_decompressed_body_size: int = MAX_DECOMPRESSED_BODY_SIZE
    verify_crc: bool = True
    namespace: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    tls: TlsSettings = ()
    broker_name: tuple[str, ...] = ()
    filter_pushdown: bool = False
    pending: bool = False

    @property
    def reset_policy(self) -> str:
        """``onQueueReset``. The default follows failOnDataLoss and skips no message."""
        return self.on_queue_reset or ("fail" if self.fail_on_data_loss else "earliest")

    @property
    def stream_limits(self) -> list[str]:
        """The given options that work only if Spark passes limits to the stream, which it does since 4.2."""
        limits = {
            "maxOffsetsPerTrigger": self.max_offsets_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "minOffsetsPerTrigger": self.min_offsets_per_trigger,
            "onQueueReset": None if self.on_queue_reset == "fail" else self.on_queue_reset,
        }
        return [name for name, value in limits.items() if value is not None]

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """Parse Spark's options, whose names ignore case. Raises ConfigError.

        ``streaming`` is None while the kind of the read is unknown.
        """
        given: dict[str, tuple[str, str]] = {}
        values: dict[str, Any] = {}
        for name, text in options.items():
            if is_tls_option(name):
                given["tls"] = (name, text)
                continue
            shown, field, read = _option(name, text)
            if field in values:
                raise ConfigError(shown, text, f"given twice, also as {given[field][0]}")
            values[field], given[field] = read(shown, text), (shown, text)
        _check_origin(given)
        _check_together(values, given)
        if streaming is not None:
            _check_kind(values, given, streaming=streaming)
            idle = _OF[Scope.CLUSTER if "path" in given else Scope.PATH]
            report_idle(given, idle, "it is for a nameserver" if "path" in given else "it is for a path")
            if not given.keys() & {"starting_timestamp_ms", "starting_offsets_by_timestamp"}:
                report_idle(given, ("starting_offsets_by_timestamp_strategy",), "no starting timestamp is given")
        return cls(**values, tls=tls_settings(options))


def _option(name: str, text: str) -> tuple[str, str, Callable[[str, str], Any]]:
    option = _OPTIONS.get(name.lower())
    if option is None:
        spelt = {known.lower(): known for known in _NAMES}
        near = KAFKAS.get(name.lower()) or [spelt[known] for known in get_close_matches(name.lower(), spelt, 3)]
        raise texts.unknown(name, text, f"no such option; there is {', '.join(near or _NAMES)}")
    return option


def _check_origin(given: dict[str, tuple[str, str]]) -> None:
    if "path" in given and "nameserver" in given:
        raise ConfigError(*given["nameserver"], "either this or path")
    if "path" not in given and "nameserver" not in given:
        raise ConfigError("path", "", "path (the directory of a store) or nameserver (host:port) must be given")
    if ("access_key" in given) != ("secret_key" in given):
        raise ConfigError("accessKey", "…", "accessKey and secretKey are given together or not at all")
    if "path" in given and "tls" in given:
        raise ConfigError(given["tls"][0], "…", "only with nameserver: files need no TLS")
    if "nameserver" in given and "broker_name" in given:
        raise ConfigError(*given["broker_name"], "only with path: a cluster knows the names of its brokers")


def _check_together(values: dict[str, Any], given: dict[str, tuple[str, str]]) -> None:
    chosen = [given[field] for field in _ONE_OF if field in given]
    if len(chosen) > 1:
        raise ConfigError(*chosen[1], f"either this or {chosen[0][0]}: one of subscribe, subscribePattern and assign")
    if values.get("pending"):
        for field in (*_ONE_OF, "namespace", "nameserver"):
            if field in given:
                raise ConfigError(*given[field], "not with pending, which reads the topics in which messages wait")
    strategy = values.get("starting_offsets_by_timestamp_strategy", "error")
    if strategy not in ("error", "latest"):
        raise ConfigError(*given["starting_offsets_by_timestamp_strategy"], "error or latest")
    minimum, maximum = values.get("min_offsets_per_trigger", 0), values.get("max_offsets_per_trigger")
    if maximum is not None and minimum > maximum:
        raise ConfigError(*given["min_offsets_per_trigger"], f"at most maxOffsetsPerTrigger, which is {maximum}")


def report_idle(given: Mapping[str, tuple[str, str]], fields: Collection[str], reason: str) -> None:
    """Log the given options among ``fields``, which have no effect here.

    They are allowed, so that reads can share options.
    """
    for field in fields:
        if field in given:
            _LOGGER.warning("the option %s is ignored: %s", given[field][0], reason)


def _check_kind(values: dict[str, Any], given: dict[str, tuple[str, str]], *, streaming: bool) -> None:
    """Refuse or report options that belong only to a stream or only to a batch."""
    if streaming:
        if values.get("pending"):
            raise ConfigError(*given["pending"], "false in a stream: what is pending now is a batch")
        for field in ("ending_offsets", "ending_timestamp_ms", "ending_offsets_by_timestamp"):
            if field in given:
                raise ConfigError(*given[field], "not in a stream, which has no end")
        report_idle(given, ("filter_pushdown",), "Spark pushes no filters into a stream")
        if "min_offsets_per_trigger" not in given:
            report_idle(given, ("max_trigger_delay_ms",), "a stream waits only for minOffsetsPerTrigger")
        return
    report_idle(given, _OF[Scope.STREAM], "a batch is read as a whole")
    first_ms, last_ms = values.get("starting_timestamp_ms"), values.get("ending_timestamp_ms")
    if first_ms is not None and last_ms is not None and first_ms >= last_ms:
        raise ConfigError(*given["starting_timestamp_ms"], f"before endingTimestamp, which is {last_ms}")
    for field, word, number in (("starting_offsets", "latest", LATEST), ("ending_offsets", "earliest", EARLIEST)):
        value = values.get(field)
        if value == word or (isinstance(value, dict) and number in value.values()):
            raise ConfigError(*given[field], f"not {word} ({number}) in a batch, which would be empty")


assert {field for _, field, _, _ in _TABLE} | {"tls"} == {spec.name for spec in fields(ReadOptions)}
