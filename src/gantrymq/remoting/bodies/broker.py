"""What a broker says of itself."""

from msgspec import field

from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.body import Body


class BrokerStatsItem(Body, kw_only=True):
    """A sum, a rate a second, and an average."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """The answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class ConsumeQueueData(Body, kw_only=True):
    """A unit of a consume queue; ``msg`` says why it cannot be read, if so."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0


class HAConnectionRuntimeInfo(Body, kw_only=True):
    """A slave as its master sees it."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class HAClientRuntimeInfo(Body, kw_only=True):
    """A slave as it sees itself."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool = False


class HARuntimeInfo(Body, kw_only=True):
    """The answer to GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


class UserInfo(Body, kw_only=True):
    """A user of the access control."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None
