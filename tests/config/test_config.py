"""Settings: the text of a broker.conf, bad values, keys without effect, and RocketMQ's defaults."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.keys import fields_by_key, require_same_at_start, write_fields
from gantrymq.config.known_keys import WITHOUT_EFFECT, is_read_at_start
from gantrymq.config.properties import amended, parse_assignments, parse_properties, read_settings
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig, RecoverRule
from gantrymq.errors import ConfigError
from gantrymq.namesrv.settings import NamesrvConfig

# The text


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 \n\n  b : 2  ", {"a": "1", "b": "2"}),
        ("# a=1\n! b=2\n  # c=3\nd=4", {"d": "4"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a=b=c\nd=e:f\ng:h=i", {"a": "b=c", "d": "e:f", "g": "h=i"}),
        ("a=\nb", {"a": "", "b": ""}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("brokerName=订单", {"brokerName": "订单"}),
        ("a 1\nb\t2\nc\f= 3\nd : = 4\ne  f g", {"a": "1", "b": "2", "c": "3", "d": "= 4", "e": "f g"}),
        ("a\\=b=c\nd\\ e\\:=f\n\\u0067=h", {"a=b": "c", "d e:": "f", "g": "h"}),
        ("=1\n\xa0a=2", {"": "1", "\xa0a": "2"}),
    ],
)
def test_config_line_is_split_into_key_and_value(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("messageDelayLevel=1s \\\n  5s \\\n\t10s\na=1", {"messageDelayLevel": "1s 5s 10s", "a": "1"}),
        ("a=1 \\\r\n  2", {"a": "1 2"}),
        ("# a comment does not go on \\\na=1", {"a": "1"}),
        ("a=C:\\\\\\\\\nb=2", {"a": "C:\\\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\ ", {"a": "1"}),
        ("\\\n# a comment\n\\\n\na=1\n\\", {"a": "1"}),
        ("a=\\u0041\\t\\:", {"a": "A\t:"}),
    ],
)
def test_backslash_at_line_end_continues_value(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


def test_changed_key_takes_place_of_its_line() -> None:
    text = "# mine\nbrokerName a\nlistenPort=1\\\n  2\n\n! yours\nbrokerName: b"
    assert amended(text, {"brokerName": "c", "flushDiskType": "SYNC_FLUSH"}) == (
        "# mine\nbrokerName=c\nlistenPort=1\\\n  2\n\n! yours\nflushDiskType=SYNC_FLUSH\n"
    )
    assert amended("", {"a": "1"}) == "a=1\n"
    assert amended("a=1", {}) == "a=1\n"


WORDS = st.text("abz019.#!=: \\\t\n\r\f\v订", max_size=8)


@given(st.lists(WORDS).map("\n".join), st.dictionaries(st.sampled_from(["a", "b", "key"]), WORDS.map(str.rstrip)))
def test_amended_keys_are_read_back(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(amended(text, entries)) == parse_properties(text) | entries


# Values


def test_values_are_read_as_their_setting_wants_them() -> None:
    reading = read_settings(
        {
            "flushDiskType": "SYNC_FLUSH",
            "mappedFileSizeCommitLog": "16384",
            "messageIndexEnable": "False",
            "deleteWhen": "04;16;",
            "flushDelayOffsetInterval": "5000L",
            "recoverRule": "4.x",
        }
    )
    config = reading.config
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.mapped_file_size_commit_log == 16_384
    assert config.message_index_enable is False
    assert config.delete_when == "04;16;"
    assert config.flush_delay_offset_interval_ms == 5_000
    assert config.recover_rule is RecoverRule.V4
    assert "flushDiskType" in reading.given
    assert reading.warnings == ()


def test_unset_keys_come_from_base() -> None:
    base = replace(MessageStoreConfig(), listen_port=1234)
    assert read_settings({"brokerIP1": "10.0.0.1"}, base).config == replace(base, broker_ip1="10.0.0.1")


def test_size_of_queue_files_is_rounded_up_to_whole_units() -> None:
    for size, rounded in ((1, 20), (1_000_010, 1_000_020), (1_000_020, 1_000_020)):
        assert MessageStoreConfig(mapped_file_size_consume_queue=size).mapped_file_size_consume_queue == rounded


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("messageIndexEnable", "yes", "true or false"),
        ("flushDiskType", "sync", "one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("mappedFileSizeCommitLog", "1G", "a whole number"),
        ("mappedFileSizeCommitLog", "", "a whole number"),
        ("mappedFileSizeCommitLog", "1023", "at least 1024"),
        ("mappedFileSizeCommitLog", "2147483648", "at most 2147483647"),
        ("mappedFileSizeConsumeQueue", "2147483647", "at most 2147483640"),
        ("maxIndexNum", "1", "at least 2"),
        ("flushIntervalCommitLog", "2147483648", "at most 2147483647"),
        ("flushDelayOffsetInterval", "9223372036854775808", "at most 9223372036854775807"),
        ("cleanResourceInterval", "9" * 5_000, "a whole number"),
        ("listenPort", "1_0", "a whole number"),
        ("diskMaxUsedSpaceRatio", "75.5", "a whole number"),
        ("listenPort", "65536", "at most 65535"),
        ("deleteWhen", "24", "an hour of the day"),
        ("deleteWhen", ";4", "an hour of the day"),
        ("deleteWhen", ";", "an hour of the day"),
        ("deleteWhen", "²", "an hour of the day"),
        ("messageDelayLevel", "1s 5x", "a list like"),
        ("messageDelayLevel", "", "a list like"),
        ("messageDelayLevel", "²s", "a list like"),
        ("messageDelayLevel", "1s -5s", "a list like"),
        ("messageDelayLevel", "1s 53375995584d", "none above 4611686018427387903 ms"),
        pytest.param("messageDelayLevel", "9" * 5000 + "s", "none above", id="more digits than Python reads"),
    ],
)
def test_bad_value_is_named_with_key_and_allowed_values(key: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)) as refused:
        read_settings({key: value})
    assert refused.value.key == key
    assert str(refused.value.value) == value
    assert allowed in refused.value.allowed
    assert "\n" not in str(refused.value)


def test_text_for_enum_setting_becomes_its_item() -> None:
    """Else a store that was told SYNC_FLUSH would acknowledge before its bytes are on the disk."""
    config = MessageStoreConfig(flush_disk_type="SYNC_FLUSH", recover_rule="4.x")  # type: ignore[arg-type]
    assert (config.flush_disk_type, config.recover_rule) == (FlushDiskType.SYNC_FLUSH, RecoverRule.V4)


def test_path_for_text_setting_becomes_text() -> None:
    acl_file, kv_file = Path("plain_acl.yml"), Path("kvConfig.json")
    assert BrokerConfig(acl_plain_file=acl_file).acl_plain_file == "plain_acl.yml"  # type: ignore[arg-type]
    assert NamesrvConfig(kv_config_path=kv_file).kv_config_path == "kvConfig.json"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (MessageStoreConfig, {"flush_disk_type": "SYNC"}, "flushDiskType"),
        (MessageStoreConfig, {"check_crc_on_recover": "false"}, "checkCRCOnRecover"),
        (MessageStoreConfig, {"delete_when": 4}, "deleteWhen"),
        (BrokerConfig, {"namesrv_addr": ["127.0.0.1:9876"]}, "namesrvAddr"),
        (NamesrvConfig, {"wait_seconds_for_service": "45"}, "waitSecondsForService"),
    ],
)
def test_value_of_wrong_type_is_named(kind: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        kind(**settings)


# Keys


@pytest.mark.parametrize(
    ("key", "value", "warned"),
    [
        ("brokerId", "1", None),  # a broker does not start with it, which does not concern a store
        ("storeType", "defaultRocksDB", "storeType=defaultRocksDB cannot be honoured: "),
        ("storeType", " Default ", None),  # RocketMQ's default
        ("maxHaTransferByteInSecond", "104857600", None),
        ("skipPreOnline", "true", "skipPreOnline has no effect here: an acting master here only serves reads"),
        ("migrateAuthFromV1Enabled", "true", "migrateAuthFromV1Enabled has no effect here: accounts of plain_acl.yml"),
        ("sendMessageThreadPoolNums", "64", None),  # tuning of Java's own machinery
        ("brokerName", "broker-b", None),  # it is a broker's: no effect on a store
    ],
)
def test_key_without_effect_here_causes_warning_unless_default(key: str, value: str, warned: str | None) -> None:
    reading = read_settings({key: value})
    assert reading.config == MessageStoreConfig()
    assert len(reading.warnings) == (warned is not None)
    for warning in reading.warnings:
        assert warning.startswith(str(warned))
        assert "secret" not in warning


def test_unknown_key_in_file_causes_warning_with_nearest_keys() -> None:
    (warning,) = read_settings({"flushDiskTyp": "SYNC_FLUSH"}).warnings
    assert warning.startswith("flushDiskTyp is not a key of RocketMQ; nearest: flushDiskType")


def test_unknown_key_on_command_line_raises() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_assignments(["flushDiskTyp=SYNC_FLUSH"])
    assert (refused.value.key, refused.value.value) == ("flushDiskTyp", "SYNC_FLUSH")
    assert refused.value.allowed == "it is not a key of RocketMQ; nearest: flushDiskType"


@pytest.mark.parametrize("assignment", ["flushDiskType", "", "=SYNC_FLUSH"])
def test_line_without_assignment_raises(assignment: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_assignments([assignment])


def test_assignments_may_have_empty_values_and_last_wins() -> None:
    assert parse_assignments(["deleteWhen=04", "deleteWhen=04;16", "haMasterAddress=", "brokerName=a=b"]) == {
        "deleteWhen": "04;16",
        "haMasterAddress": "",
        "brokerName": "a=b",
    }


# The settings


def test_written_settings_are_read_back() -> None:
    odd = replace(
        MessageStoreConfig(),
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        message_index_enable=False,
        delete_when="04;16",
        recover_rule=RecoverRule.V4,
        broker_ip1="::1",
        mapped_file_size_commit_log=16_384,
    )
    for config in (MessageStoreConfig(), odd):
        reading = read_settings(write_fields(config))
        assert reading.config == config
        assert reading.warnings == ()
        assert len(reading.given) == len(fields(MessageStoreConfig))


# Copied from MessageStoreConfig.java of 5.5.0, and BrokerConfig's port.
DEFAULTS = """
    mappedFileSizeCommitLog=1073741824
    mappedFileSizeConsumeQueue=6000000
    enableConsumeQueueExt=false
    mappedFileSizeConsumeQueueExt=50331648
    flushIntervalCommitLog=500
    commitIntervalCommitLog=200
    diskSpaceWarningLevelRatio=90
    diskSpaceCleanForciblyRatio=85
    flushCommitLogTimed=true
    flushIntervalConsumeQueue=1000
    cleanResourceInterval=10000
    deleteCommitLogFilesInterval=100
    destroyMapedFileIntervalForcibly=120000
    redeleteHangedFileInterval=120000
    deleteWhen=04
    diskMaxUsedSpaceRatio=75
    fileReservedTime=72
    deleteFileBatchMax=10
    maxMessageSize=4194304
    maxFilterMessageSize=16000
    checkCRCOnRecover=true
    checkCommitLogOffsetOnRecover=false
    flushCommitLogLeastPages=4
    commitCommitLogLeastPages=4
    flushConsumeQueueLeastPages=2
    flushCommitLogThoroughInterval=10000
    commitCommitLogThoroughInterval=200
    flushConsumeQueueThoroughInterval=60000
    messageIndexEnable=true
    maxHashSlotNum=5000000
    maxIndexNum=20000000
    maxMsgsNumBatch=64
    messageIndexSafe=false
    flushDiskType=ASYNC_FLUSH
    syncFlushTimeout=5000
    messageDelayLevel=1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
    flushDelayOffsetInterval=10000
    cleanFileForciblyEnable=true
    warmMapedFileEnable=false
    duplicationEnable=false
    transientStorePoolEnable=false
    transientStorePoolSize=5
    fastFailIfNoBufferInStorePool=false
    autoMessageVersionOnTopicLen=true
    enabledAppendPropCRC=false
    forceVerifyPropCRC=false
    listenPort=10911
    timerWheelEnable=true
    mappedFileSizeTimerLog=104857600
    timerPrecisionMs=1000
    timerRollWindowSlot=172800
    maxConsumeQueueScan=20000
    sampleCountThreshold=5000
    timerFlushIntervalMs=1000
    timerMaxDelaySec=259200
    timerCongestNumEachSlot=2147483647
    timerStopEnqueue=false
    timerStopDequeue=false
    appendTopicForTimerDeleteKey=false
    brokerRole=ASYNC_MASTER
    haSendHeartbeatInterval=5000
    haHousekeepingInterval=20000
    haTransferBatchSize=32768
    haMaxGapNotInSync=268435456
    inSyncReplicas=1
    minInSyncReplicas=1
    totalReplicas=1
    enableAutoInSyncReplicas=false
    slaveTimeout=3000
    haMasterAddress=
    offsetCheckInSlave=false
    accessMessageInMemoryMaxRatio=40
"""


def test_defaults_equal_those_of_rocketmq() -> None:
    assert parse_properties(DEFAULTS).items() <= write_fields(MessageStoreConfig()).items()


def test_defaults_differ_from_rocketmq_only_in_listed_keys() -> None:
    ours = write_fields(MessageStoreConfig()).keys() - parse_properties(DEFAULTS).keys()
    own_keys = {"recoverRule", "recoverLastFiles", "maxDecompressedBodySize", "acceptMissingCommitLog"}
    own_keys |= {"acceptWithoutEffect", "haEnable", "haLastFileOnly", "haAllowedSlaves", "haAckDurable", "haTruncate"}
    own_keys |= {"haAuthenticationEnabled", "haTlsEnable"}
    paths = {"storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"}
    assert ours == own_keys | paths | {"commitLogRecoverMaxNum", "brokerIP1", "haListenPort"}


def test_delay_levels_are_parsed_from_text() -> None:
    assert MessageStoreConfig().delay_levels_ms[:6] == (1_000, 5_000, 10_000, 30_000, 60_000, 120_000)
    assert MessageStoreConfig().delay_levels_ms[-2:] == (3_600_000, 7_200_000)
    assert MessageStoreConfig(message_delay_level="3s 1d").delay_levels_ms == (3_000, 86_400_000)


def test_start_only_keys_do_not_change() -> None:
    running = MessageStoreConfig()
    require_same_at_start(running, replace(running, file_reserved_time_hours=1, flush_interval_commit_log_ms=1))
    with pytest.raises(ConfigError, match=r"flushDiskType='SYNC_FLUSH' .* it is 'ASYNC_FLUSH', and only a start reads"):
        require_same_at_start(running, replace(running, flush_disk_type=FlushDiskType.SYNC_FLUSH))


@pytest.mark.parametrize("field", ["broker_name", "broker_cluster_name", "region_id", "msg_trace_topic_name"])
@pytest.mark.parametrize("value", ["", "a\x01b", "a\nb", "a\ud800", "n" * 256])
def test_broker_name_invalid_in_messages_is_refused(field: str, value: str) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig(**{field: value})


@pytest.mark.parametrize("value", ["a b", "a/b", "n" * 128])
def test_broker_and_cluster_names_follow_topic_name_rule(value: str) -> None:
    for field in ("broker_name", "broker_cluster_name"):
        with pytest.raises(ConfigError):
            BrokerConfig(**{field: value})
    BrokerConfig(broker_name="broker-a.rack_1%", broker_cluster_name="Größe")


def test_keys_of_paths_and_addresses_are_start_only() -> None:
    """A key without effect that a later version, or RocketMQ, would act on at the next start."""
    places = re.compile(
        r"(?i)path|IP\d$|[a-z]Port$|Host$|role$|storeType|fileSize|dLeger|masterAddress|controllerAddr$"
    )
    # Acted on at once; never updated; no port; overwritten by RocketMQ's start.
    live = {"namesrvAddr", "brokerConfigPath", "filterSupportRetry", "authConfigPath"}
    ours = fields_by_key(BrokerConfig) | fields_by_key(MessageStoreConfig)
    at_start = {name for name, spec in ours.items() if spec.metadata["at_start"]}
    found = {name for name in (*ours, *WITHOUT_EFFECT) if places.search(name)}
    assert {name for name in found if name not in at_start and not is_read_at_start(name)} <= live
    assert {"storePathRootDir", "haListenPort", "brokerIP2", "storeType"} <= found


def test_secret_value_is_in_no_text() -> None:
    live, secret = LiveConfig(), '{"username":"root","password":"s3cret"}'
    live.update({"initAuthenticationUser": secret})
    assert "initAuthenticationUser=******\n" in live.to_properties()
    assert "s3cret" not in repr(live.broker)
    for wrong in (secret + "\x00", secret * 1000, secret.replace("root", "other")):
        with pytest.raises(ConfigError) as refused:
            live.update({"initAuthenticationUser": wrong}, running=True)
        assert "s3cret" not in str(refused.value)
