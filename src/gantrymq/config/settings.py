"""The settings of a store, under RocketMQ's keys and with its defaults (MessageStoreConfig of 5.5.0).

Every field has the key of a ``broker.conf`` in its metadata. Only keys with an effect here have a field. A comment says
why a default is not RocketMQ's; docs/COMPATIBILITY.md lists them.
"""

from enum import Enum
from functools import cached_property

from gantrymq.config.frozen import settings
from gantrymq.config.keys import check_values, key
from gantrymq.config.replication_settings import ReplicationSettings
from gantrymq.errors import ConfigError
from gantrymq.model.delays import DELAY_LEVELS, parse_delay_levels_ms
from gantrymq.model.java import INT_MAX, LONG_MAX
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.model.spans import MAX_DELAY_MS

PATH_SEPARATOR = ","  # MULTI_PATH_SPLITTER
_GIB = 1 << 30
_UNIT_SIZE = 20


class FlushDiskType(Enum):
    """When a put is acknowledged: when its bytes are on the disk, or when they are in the page cache."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class RecoverRule(Enum):
    """The release whose rule chooses the file that recovery begins with."""

    V5 = "5.5.0"
    V4 = "4.x"


@settings(frozen=True)
class MessageStoreConfig(ReplicationSettings):
    """The settings of one store. Immutable and validated; raises ConfigError."""

    # Commands get the store's path; this key only protects the log of another store (StorePaths).
    store_path_root_dir: str = key("storePathRootDir", "", at_start=True)
    # Empty: commitlog/ in the store. Several directories are separated by commas, as in 5.5.0.
    store_path_commit_log: str = key("storePathCommitLog", "", at_start=True)
    read_only_commit_log_store_paths: str = key("readOnlyCommitLogStorePaths", "", at_start=True)
    # Not RocketMQ's: open a store for writing although files of its commit log are missing (see store.missing_log).
    accept_missing_commit_log: bool = key("acceptMissingCommitLog", False, at_start=True)
    mapped_file_size_commit_log: int = key("mappedFileSizeCommitLog", _GIB, min_value=1024, at_start=True)
    # Rounded up to whole units, as RocketMQ's getter does.
    mapped_file_size_consume_queue: int = key(
        "mappedFileSizeConsumeQueue",
        300_000 * _UNIT_SIZE,
        min_value=1,
        max_value=INT_MAX // _UNIT_SIZE * _UNIT_SIZE,
        at_start=True,
    )
    max_hash_slot_num: int = key("maxHashSlotNum", 5_000_000, min_value=1, at_start=True)
    max_index_num: int = key("maxIndexNum", 20_000_000, min_value=2, at_start=True)
    message_index_enable: bool = key("messageIndexEnable", True, at_start=True)
    message_index_safe: bool = key("messageIndexSafe", False, at_start=True)
    flush_disk_type: FlushDiskType = key("flushDiskType", FlushDiskType.ASYNC_FLUSH, at_start=True)
    sync_flush_timeout_ms: int = key("syncFlushTimeout", 5_000, min_value=1)
    flush_interval_commit_log_ms: int = key("flushIntervalCommitLog", 500, min_value=1)
    flush_commit_log_least_pages: int = key("flushCommitLogLeastPages", 4, min_value=0)
    flush_commit_log_thorough_interval_ms: int = key("flushCommitLogThoroughInterval", 10_000, min_value=0)
    flush_commit_log_timed: bool = key("flushCommitLogTimed", True)
    transient_store_pool_enable: bool = key("transientStorePoolEnable", False, at_start=True)
    transient_store_pool_size: int = key("transientStorePoolSize", 5, min_value=1, at_start=True)
    fast_fail_if_no_buffer_in_store_pool: bool = key("fastFailIfNoBufferInStorePool", False)
    commit_interval_commit_log_ms: int = key("commitIntervalCommitLog", 200, min_value=1)
    commit_commit_log_least_pages: int = key("commitCommitLogLeastPages", 4, min_value=0)
    commit_commit_log_thorough_interval_ms: int = key("commitCommitLogThoroughInterval", 200, min_value=0)
    warm_maped_file_enable: bool = key("warmMapedFileEnable", False, at_start=True)
    flush_interval_consume_queue_ms: int = key("flushIntervalConsumeQueue", 1_000, min_value=1)
    flush_consume_queue_least_pages: int = key("flushConsumeQueueLeastPages", 2, min_value=0)
    flush_consume_queue_thorough_interval_ms: int = key("flushConsumeQueueThoroughInterval", 60_000, min_value=0)
    file_reserved_time_hours: int = key("fileReservedTime", 72, min_value=0)
    delete_when: str = key("deleteWhen", "04")
    # Values out of range are clamped where they are used (store.retention), as in RocketMQ.
    disk_max_used_space_ratio: int = key("diskMaxUsedSpaceRatio", 75)
    disk_space_clean_forcibly_ratio: int = key("diskSpaceCleanForciblyRatio", 85)
    disk_space_warning_level_ratio: int = key("diskSpaceWarningLevelRatio", 90)
    clean_file_forcibly_enable: bool = key("cleanFileForciblyEnable", True)
    clean_resource_interval_ms: int = key("cleanResourceInterval", 10_000, min_value=1)
    delete_commit_log_files_interval_ms: int = key("deleteCommitLogFilesInterval", 100, min_value=0)
    destroy_maped_file_interval_forcibly_ms: int = key("destroyMapedFileIntervalForcibly", 120_000, min_value=0)
    redelete_hanged_file_interval_ms: int = key("redeleteHangedFileInterval", 120_000, min_value=0)
    delete_file_batch_max: int = key("deleteFileBatchMax", 10, min_value=1)
    max_message_size_bytes: int = key("maxMessageSize", 4 << 20, min_value=1, max_value=0x7FFF0000)
    # Not RocketMQ's: a body that would be larger after decompression counts as one that cannot be decompressed.
    max_decompressed_body_size_bytes: int = key("maxDecompressedBodySize", MAX_DECOMPRESSED_BODY_SIZE, min_value=1)
    max_msgs_num_batch: int = key("maxMsgsNumBatch", 64, min_value=1)
    # A pull of messages farther from the log's end than this part of the memory is told to ask a slave.
    access_message_in_memory_max_ratio: int = key("accessMessageInMemoryMaxRatio", 40, min_value=0, max_value=100)
    max_filter_message_size_bytes: int = key("maxFilterMessageSize", 16_000, min_value=_UNIT_SIZE)
    enabled_append_prop_crc: bool = key("enabledAppendPropCRC", False, at_start=True)
    force_verify_prop_crc: bool = key("forceVerifyPropCRC", False, at_start=True)
    auto_message_version_on_topic_len: bool = key("autoMessageVersionOnTopicLen", True)
    check_crc_on_recover: bool = key("checkCRCOnRecover", True, at_start=True)
    check_commit_log_offset_on_recover: bool = key("checkCommitLogOffsetOnRecover", False, at_start=True)
    duplication_enable: bool = key("duplicationEnable", False, at_start=True)
    # 10 in RocketMQ, with which a larger store silently loses messages; 0 is no limit.
    commit_log_recover_max_num: int = key("commitLogRecoverMaxNum", 0, min_value=0, at_start=True)
    # Not RocketMQ's: the rule of 4.x reads the last three files after a clean stop.
    recover_rule: RecoverRule = key("recoverRule", RecoverRule.V5, at_start=True)
    recover_last_files: int = key("recoverLastFiles", 3, min_value=1, at_start=True)
    flush_delay_offset_interval_ms: int = key("flushDelayOffsetInterval", 10_000, min_value=1, max_value=LONG_MAX)
    message_delay_level: str = key("messageDelayLevel", DELAY_LEVELS, at_start=True)
    timer_wheel_enable: bool = key("timerWheelEnable", True, at_start=True)
    mapped_file_size_timer_log: int = key("mappedFileSizeTimerLog", 100 << 20, min_value=68, at_start=True)
    timer_precision_ms: int = key("timerPrecisionMs", 1_000, min_value=1, max_value=60_000, at_start=True)
    timer_roll_window_slots: int = key("timerRollWindowSlot", 2 * 24 * 3600)
    timer_flush_interval_ms: int = key("timerFlushIntervalMs", 1_000, min_value=1)
    timer_max_delay_s: int = key("timerMaxDelaySec", 3 * 24 * 3600, min_value=0)
    timer_congest_num_each_slot: int = key("timerCongestNumEachSlot", INT_MAX, min_value=0)
    timer_stop_enqueue: bool = key("timerStopEnqueue", False)
    timer_stop_dequeue: bool = key("timerStopDequeue", False)
    append_topic_for_timer_delete_key: bool = key("appendTopicForTimerDeleteKey", False)
    enable_consume_queue_ext: bool = key("enableConsumeQueueExt", False, at_start=True)
    mapped_file_size_consume_queue_ext: int = key(
        "mappedFileSizeConsumeQueueExt", 48 << 20, min_value=1024, at_start=True
    )
    max_consume_queue_scan: int = key("maxConsumeQueueScan", 20_000, min_value=1)
    sample_count_threshold: int = key("sampleCountThreshold", 5_000, min_value=1)
    broker_ip1: str = key("brokerIP1", "127.0.0.1", at_start=True)
    listen_port: int = key("listenPort", 10911, min_value=0, max_value=65535, at_start=True)
    # Not RocketMQ's: keys, paths and topics that a start takes although they cannot be honoured (see config/guards.py).
    accept_without_effect: str = key("acceptWithoutEffect", "", at_start=True)

    def __post_init__(self) -> None:
        """Validate every value, and the texts that are lists."""
        check_values(self)
        self.commit_log_directories, self.read_only_commit_log_directories  # noqa: B018 (raise for a bad path)
        self.check_replication()
        units = -(-self.mapped_file_size_consume_queue // _UNIT_SIZE)
        object.__setattr__(self, "mapped_file_size_consume_queue", units * _UNIT_SIZE)
        hours = self.delete_when.rstrip(";").split(";")  # Java's split drops empty parts at the end
        if not all(hour.strip().isdecimal() and int(hour) < 24 for hour in hours):
            raise ConfigError("deleteWhen", self.delete_when, 'an hour of the day like 04, or a list like "04;16"')
        if not self.delay_levels_ms:
            allowed = f"a list like 1s 5s 10m 2h 1d, none above {MAX_DELAY_MS} ms"
            raise ConfigError("messageDelayLevel", self.message_delay_level, allowed)

    @property
    def commit_log_directories(self) -> tuple[str, ...]:
        """The directories of storePathCommitLog; empty if it is not set."""
        return _directories("storePathCommitLog", self.store_path_commit_log)

    @property
    def read_only_commit_log_directories(self) -> tuple[str, ...]:
        """The directories of readOnlyCommitLogStorePaths, which get no new files."""
        return _directories("readOnlyCommitLogStorePaths", self.read_only_commit_log_store_paths)

    @cached_property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of each level in milliseconds, level 1 first; empty if the text is invalid."""
        return parse_delay_levels_ms(self.message_delay_level)


def _directories(key_name: str, text: str) -> tuple[str, ...]:
    """The comma-separated directories of a setting. Raises ConfigError for an empty part or a blank beside a comma.

    RocketMQ treats such a blank as a part of the path, and an empty path as the root directory.
    """
    parts = text.strip().rstrip(PATH_SEPARATOR).split(PATH_SEPARATOR) if text.strip() else []
    if any(not part or part != part.strip() for part in parts):
        raise ConfigError(key_name, text, "one directory, or several separated by commas without blanks")
    return tuple(dict.fromkeys(parts))
