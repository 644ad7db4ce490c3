"""Options and schemas that are wrong are named errors; the store is looked at before anything is planned."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from spark_cases import fields

from gantrymq.errors import ConfigError, NotAStoreError
from gantrymq.spark import RocketMQDataSource, options
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.schema import check_schema
from gantrymq.spark.write.options import WriteOptions

QUEUES = {("a", None, 0): 23, ("a", None, 1): -2, ("b", "x", 0): -1}

# Every option: a text that is right with what it is read as, and texts that are wrong with what is said about them.
OPTIONS: list[tuple[str, str, str, object, dict[str, str]]] = [
    ("subscribe", " a, b ,", "subscribe", ("a", "b"), {" , ": "names separated by commas"}),
    ("topic", "a", "subscribe", ("a",), {"": "names separated by commas"}),
    ("subscribePattern", "a.*", "subscribe_pattern", "a.*", {"(": "a regular expression"}),
    (
        "assign", '{"a":[0,1],"b":{"x":[3]}}', "assign", {("a", None, 0), ("a", None, 1), ("b", "x", 3)},
        {"a": "JSON", "[]": "JSON", '{"a":0}': '{"topic":[0,1]}', '{"a":["0"]}': '{"topic":[0,1]}', "{}": "one broker"},
    ),
    (
        "startingOffsets", '{"a":{"0":23,"1":-2},"b":{"x":{"0":-1}}}', "starting_offsets", QUEUES,
        {"first": "earliest, latest, or JSON", '{"a":{"0":-3}}': "at least -2", '{"a":{"x":1}}': "numbers",
         '{"a":{"0":"1"}}': "numbers", '{"a":5}': "one broker", '{"a"': "JSON", '{"a":{"0":true}}': "numbers"},
    ),
    ("startingOffsets", " Latest ", "starting_offsets", "latest", {"latest-1": "earliest, latest, or JSON"}),
    ("endingOffsets", '{"a":{"0":23}}', "ending_offsets", {("a", None, 0): 23}, {"end": "earliest, latest, or JSON"}),
    ("startingTimestamp", "1700000000000", "starting_timestamp_ms", 1_700_000_000_000, {"now": "milliseconds"}),
    ("endingTimestamp", "5", "ending_timestamp_ms", 5, {"-1": "milliseconds since 1970", "1.5": "milliseconds"}),
    (
        "startingOffsetsByTimestamp", '{"a":{"0":5}}', "starting_offsets_by_timestamp", {("a", None, 0): 5},
        {"earliest": "JSON", '{"a":{"0":-1}}': "numbers of at least 0"},
    ),
    ("endingOffsetsByTimestamp", '{"a":{"x":{"0":5}}}', "ending_offsets_by_timestamp", {("a", "x", 0): 5}, {"": "{"}),
    (
        "startingOffsetsByTimestampStrategy", "LATEST", "starting_offsets_by_timestamp_strategy", "latest",
        {"earliest": "error or latest"},
    ),
    ("minPartitions", " 7 ", "min_partitions", 7, {"0": "a whole number of at least 1", "many": "a whole number"}),
    ("maxRecordsPerPartition", "7", "max_records_per_partition", 7, {"-1": "a whole number of at least 1"}),
    ("maxOffsetsPerTrigger", "7", "max_offsets_per_trigger", 7, {"1e3": "a whole number of at least 1"}),
    ("maxBytesPerTrigger", "64m", "max_bytes_per_trigger", 64 << 20, {"0": "at least 1", "1x": "a number of bytes"}),
    ("maxBytesPerTrigger", "1000", "max_bytes_per_trigger", 1000, {"-1": "a number of bytes"}),
    ("onQueueReset", "LATEST", "on_queue_reset", "latest", {"none": "earliest, latest or fail"}),
    ("store.storePathCommitLog", "/a,/b", "store_path_commit_log", ("/a", "/b"), {",": "names separated by commas"}),
    ("retiredBrokers", "a,b", "retired_brokers", ("a", "b"), {",": "names separated by commas"}),
    ("minOffsetsPerTrigger", "7", "min_offsets_per_trigger", 7, {"": "a whole number of at least 1"}),
    ("maxTriggerDelay", "15m", "max_trigger_delay_ms", 900_000, {"15": "with its unit", "soon": "with its unit"}),
    ("maxTriggerDelay", "2 minutes", "max_trigger_delay_ms", 120_000, {"1 year": "with its unit"}),
    ("failOnDataLoss", "false", "fail_on_data_loss", False, {"no": "true or false"}),
    ("tags", " || a || b", "tags", " || a || b", {" ": "tags joined by ||", "||": "joined", "|| ||": "joined"}),
    ("keys", "a,b", "keys", ("a", "b"), {",": "names separated by commas"}),
    ("messageIndexEnable", "false", "message_index_enable", False, {"off": "true or false"}),
    ("columns", "topic,body", "columns", ("topic", "body"), {"": "names separated by commas"}),
    ("includeProperties", "false", "include_properties", False, {"0": "true or false"}),
    ("decompress", "FALSE", "decompress", False, {"yes": "true or false"}),
    ("maxDecompressedBodySize", "1000", "max_decompressed_body_size", 1000, {"0": "at least 1", "1MB": "at least 1"}),
    ("verifyCRC", "true", "verify_crc", True, {"on": "true or false"}),
    ("namespace", "ns", "namespace", "ns", {"": "not empty"}),
    ("brokerName", "a", "broker_name", ("a",), {"": "names separated by commas"}),
    ("filterPushdown", "true", "filter_pushdown", True, {"off": "true or false"}),
    ("pending", "true", "pending", True, {"half": "true or false"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "field", "value", "wrong"), OPTIONS)
def test_option_is_parsed_and_wrong_value_is_refused(
    name: str, text: str, field: str, value: object, wrong: dict[str, str]
) -> None:
    for spelt in (name, name.lower(), name.upper()):
        assert getattr(ReadOptions.parse({"path": "/x", spelt: text}), field) == value
    for bad, says in wrong.items():
        with pytest.raises(ConfigError) as raised:
            ReadOptions.parse({"path": "/x", name: bad})
        assert str(raised.value).startswith(f"{name}={bad!r} is not allowed: ")
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)


def test_every_option_is_tested() -> None:
    tested = {field for _, _, field, _, _ in OPTIONS}
    elsewhere = {"path", "nameserver", "access_key", "secret_key", "tls"}
    assert {field.name for field in dataclasses.fields(ReadOptions)} == tested | elsewhere


def test_every_option_is_read_by_reader() -> None:
    """A field that only ``options.py`` knows would be an option without effect."""
    source = "\n".join(path.read_text() for path in Path(options.__file__).parent.rglob("*.py"))
    own = Path(options.__file__).read_text()
    through_property = {"on_queue_reset": "reset_policy"}
    for field in dataclasses.fields(ReadOptions):
        read = re.compile(rf"\.{through_property.get(field.name, field.name)}\b")
        assert len(read.findall(source)) > len(read.findall(own)), f"no code acts on the option {field.name}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "path (the directory of a store) or nameserver (host:port) must be given"),
        ({"path": ""}, "the directory of a store"),
        ({"path": "/x", "nameserver": "h:1"}, "nameserver='h:1' is not allowed: either this or path"),
        ({"nameserver": "h"}, "nameserver='h' is not allowed: host:port, several joined by semicolons"),
        ({"nameserver": "h:1; h"}, "host:port, several joined by semicolons"),
        ({"nameserver": "h:1", "brokerName": "a"}, "a cluster knows the names of its brokers"),
        ({"path": "/x", "paths": '["/y"]'}, "given twice, also as path"),
        ({"path": "/x", "subscribe": "a", "topic": "b"}, "given twice, also as subscribe"),
        ({"path": "/x", "subscribe": "a", "subscribePattern": "b"}, "subscribePattern='b' is not allowed: either this"),
        ({"path": "/x", "assign": '{"a":[0]}', "subscribe": "a"}, "either this or subscribe"),
        ({"path": "/x", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "at most maxOffsetsPerTrigger"),
        ({"path": "/x", "accessKey": "a"}, "together or not at all"),
        ({"path": "/x", "minPartition": "3"}, "no such option; there is minPartitions"),
        ({"path": "/x", "kafka.bootstrap.servers": "h:1"}, "no such option; there is nameserver"),
        ({"path": "/x", "includeHeaders": "true"}, "no such option; there is includeProperties"),
        ({"path": "/x", "qwertz": "3"}, "no such option; there is path, nameserver, subscribe"),
    ],
)
def test_conflicting_options_are_refused_in_one_line(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ReadOptions.parse(options)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


SECRETS = ("secretKeys", "tls.client.keyPasswd", "passwort", "kafka.sasl.jaas.config", "store.rocksdbPassword")


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("parse", [ReadOptions.parse, WriteOptions.parse])
def test_secret_whose_name_is_misspelt_is_not_shown(name: str, parse: Callable[[dict[str, str]], object]) -> None:
    for spelt in (name, name.lower(), name.upper()):
        with pytest.raises(ConfigError, match=re.escape(f"{spelt}='…' is not allowed")) as raised:
            parse({"nameserver": "h:1", spelt: "hunter2"})
        assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError, match="there is accessKey, secretKey"):
        parse({"nameserver": "h:1", "kafka.sasl.jaas.config": "hunter2"})


@pytest.mark.parametrize(
    ("options", "streaming", "says"),
    [
        ({"startingOffsets": "latest"}, False, "not latest (-1) in a batch"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, False, "not latest (-1) in a batch"),
        ({"startingTimestamp": "2000", "endingTimestamp": "1000"}, False, "before endingTimestamp, which is 1000"),
        ({"endingOffsets": "earliest"}, False, "not earliest (-2) in a batch"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, False, "not earliest (-2) in a batch"),
        ({"endingOffsets": "latest"}, True, "not in a stream, which has no end"),
        ({"endingTimestamp": "5"}, True, "not in a stream, which has no end"),
        ({"endingOffsetsByTimestamp": '{"a":{"0":5}}'}, True, "not in a stream, which has no end"),
    ],
)
def test_option_of_other_read_mode_is_refused(options: dict[str, str], streaming: bool, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ReadOptions.parse({"path": "/x", **options}, streaming=streaming)
    assert says in str(raised.value)
    ReadOptions.parse({"path": "/x", **options})  # at load() it is not known yet


IGNORED: list[tuple[dict[str, str], bool, str]] = [
    ({"path": "/x", "ACCESSKEY": "a", "secretKey": "b"}, False, "the option accessKey is ignored: it is for a nameser"),
    ({"path": "/x", "accessKey": "a", "secretKey": "b"}, True, "the option secretKey is ignored: it is for a name"),
    ({"nameserver": "h:1", "messageIndexEnable": "false"}, False, "the option messageIndexEnable is ignored: it is"),
    ({"path": "/x", "maxOffsetsPerTrigger": "5"}, False, "the option maxOffsetsPerTrigger is ignored: a batch is read"),
    ({"path": "/x", "minOffsetsPerTrigger": "5"}, False, "the option minOffsetsPerTrigger is ignored: a batch is read"),
    ({"path": "/x", "maxTriggerDelay": "5s"}, False, "the option maxTriggerDelay is ignored: a batch is read as a who"),
    ({"path": "/x", "maxTriggerDelay": "5s"}, True, "the option maxTriggerDelay is ignored: a stream waits only for"),
    ({"path": "/x", "maxTriggerDelay": "5s", "minOffsetsPerTrigger": "5"}, True, ""),
    ({"path": "/x", "filterPushdown": "true"}, True, "the option filterPushdown is ignored: Spark pushes no filters"),
    ({"path": "/x", "filterPushdown": "true"}, False, ""),
    (
        {"path": "/x", "startingOffsetsByTimestampStrategy": "latest"}, True,
        "the option startingOffsetsByTimestampStrategy is ignored: no starting timestamp is given",
    ),
    ({"path": "/x", "startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": "5"}, False, ""),
    (
        {"path": "/x", "startingOffsetsByTimestampStrategy": "latest", "startingOffsetsByTimestamp": '{"a":{"0":5}}'},
        True, "",
    ),
    ({"nameserver": "h:1", "accessKey": "a", "secretKey": "b"}, True, ""),
]  # fmt: skip


@pytest.mark.parametrize(("options", "streaming", "says"), IGNORED)
def test_option_without_effect_is_logged(
    options: dict[str, str], streaming: bool, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka's connector has it: a program may give all its reads the same options."""
    ReadOptions.parse(options)
    assert not caplog.messages  # it is said once, when it is known what kind of read it will be
    ReadOptions.parse(options, streaming=streaming)
    assert says in caplog.text
    assert bool(caplog.messages) == bool(says)


def test_write_with_ineffective_signature_option_logs_warning(caplog: pytest.LogCaptureFixture) -> None:
    WriteOptions.parse({"path": "/x", "accessKey": "a", "secretKey": "b"})
    assert caplog.messages == ["the options accessKey and secretKey are ignored: they are for a nameserver"]


@pytest.mark.parametrize("wrong", ["-1", "many", "1.5"])
def test_invalid_retry_count_is_refused(wrong: str) -> None:
    assert WriteOptions.parse({"nameserver": "h:1", "retryTimesWhenSendFailed": "0"}).retry_times_when_send_failed == 0
    with pytest.raises(ConfigError, match=f"retryTimesWhenSendFailed='{wrong}' is not allowed: a whole number of at"):
        WriteOptions.parse({"nameserver": "h:1", "retryTimesWhenSendFailed": wrong})


def test_write_with_retention_option_logs_missing_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = {"store.fileReservedTime": "1", "STORE.DELETEWHEN": "04", "store.diskMaxUsedSpaceRatio": "50"}
    WriteOptions.parse({"path": "/x", "store.mappedFileSizeCommitLog": "65536", **keys})
    assert [message.partition(" is ignored: ")[0] for message in caplog.messages] == [
        "the option store.fileReservedTime", "the option store.deleteWhen", "the option store.diskMaxUsedSpaceRatio",
    ]  # fmt: skip
    assert caplog.messages[0].endswith("a sink deletes no messages and delivers none that are delayed")


def test_directory_without_store_is_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "nowhere", "does not exist"), (tmp_path, "is not a RocketMQ store")):
        source = RocketMQDataSource({"path": str(path)})
        with pytest.raises(NotAStoreError, match=reason):
            source.schema()
        with pytest.raises(NotAStoreError, match=reason):
            source.reader(fields())


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("bodi", BinaryType()), "schema='bodi binary' is not allowed: no such column; there is body"),
        (StructField("xyzzy", BinaryType()), "there is topic, broker, queue_id"),
        (StructField("Topic", StringType()), "no such column; there is topic"),
        (StructField("body", StringType()), "schema='body string' is not allowed: the column is body binary"),
        (StructField("queue_id", LongType()), "the column is queue_id int"),
        (StructField("keys", ArrayType(LongType())), "the column is keys array<string>"),
        (StructField("born_timestamp", TimestampNTZType()), "the column is born_timestamp timestamp_ltz"),
        (StructField("tags", StringType(), False), "'tags string NOT NULL' is not allowed: the column can be null"),
    ],
)
def test_wrong_schema_is_refused(field: StructField, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_schema(StructType([StructField("topic", StringType()), field]))
    assert says in str(raised.value)


def test_schema_with_non_nullable_columns_is_accepted() -> None:
    check_schema(
        StructType(
            [
                StructField("keys", ArrayType(StringType(), False), False),
                StructField("properties", MapType(StringType(), StringType(), False), False),
                StructField("born_timestamp", TimestampType()),
            ]
        )
    )
    with pytest.raises(ConfigError, match="at least one column"):
        check_schema(StructType([]))


def test_scope_of_option_is_enforced_from_its_row() -> None:
    of = options._OF
    assert set(of[options.Scope.CLUSTER]) == {"access_key", "secret_key"}
    assert set(of[options.Scope.PATH]) == {"message_index_enable", "retired_brokers", "store_path_commit_log"}
    assert [row for row in options._TABLE if not isinstance(row[3], options.Scope)] == []
