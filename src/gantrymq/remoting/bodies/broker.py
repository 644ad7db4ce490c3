"""Bodies about a broker: statistics, consume queue units, replication, RocksDB."""

from msgspec import field

from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long


class BrokerStatsItem(Body, kw_only=True):
    """A sum, a rate per second, and an average."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """The answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class ConsumeQueueData(Body, kw_only=True):
    """A unit of a consume queue. ``msg`` says why it cannot be read, or is None."""

    physic_offset: Long = 0
    physic_size: Int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0


class HAConnectionRuntimeInfo(Body, kw_only=True):
    """A slave's state as reported by its master."""

    addr: str | None = None
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0
    # Not RocketMQ's: why the slave is not in sync or was closed, and whether acknowledgements of puts count it.
    state: str | None = None
    voter: bool | None = None


class HAClientRuntimeInfo(Body, kw_only=True):
    """A slave's state as reported by itself."""

    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0
    activated: bool = False
    # Not RocketMQ's: what the copy does, why it stands still, what it has acknowledged, the master's end, when the
    # tables had followed the master's last (ms), and how many bytes a record has on average.
    state: str | None = None
    reason: str | None = None
    ack_offset: Long | None = None
    master_max_offset: Long | None = None
    tables_timestamp: Long | None = None
    record_bytes: Long | None = None


class HARuntimeInfo(Body, kw_only=True):
    """The answer to GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: Int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    # Not RocketMQ's: slaves whose connection the master closed within the last minute, and why.
    closed_connection_info: list[HAConnectionRuntimeInfo] | None = None
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


class EpochEntry(Body, kw_only=True):
    """The offsets [start, end) of the log that were written in an epoch of a controller."""

    epoch: Int = 0
    start_offset: Long = 0
    end_offset: Long = 0


class EpochEntryCache(Body, kw_only=True):
    """The answer to GET_BROKER_EPOCH_CACHE."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Long = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: Long = 0


class CheckRocksdbCqWriteResult(Body, kw_only=True):
    """The answer to CHECK_ROCKSDB_CQ_WRITE_PROGRESS."""

    check_result: str | None = None
    check_status: Int = 0
